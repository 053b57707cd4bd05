// Tables, sorted by a click on a column's name.

const barOf = ([kept, packed, recomputed], most) => {
  const bar = element('div', {class: 'bar', role: 'img',
    'aria-label': `kept ${bytesText(kept)}, packed ${bytesText(packed)}, recomputed ${bytesText(recomputed)}`});
  for (const [bytes, part] of [[kept, KEPT], [packed, PACKED], [recomputed, RECOMPUTED]]) {
    if (!bytes) continue;
    const piece = swatch(part);
    piece.setAttribute('style', `width:${100 * bytes / most}%`);
    bar.append(piece);
  }
  return bar;
};
// On a narrow screen a table is cut, and most of these show no bar to move it by.
const tellWhatIsCut = place => {
  const hint = element('p', {class: 'soft cut', 'aria-hidden': true}, 'more columns to the right \u2192');
  place.before(hint);
  const look = () => { hint.hidden = place.scrollLeft + place.clientWidth >= place.scrollWidth - 1; };
  place.addEventListener('scroll', look, {passive: true});
  new ResizeObserver(look).observe(place);
  new ResizeObserver(look).observe(place.firstElementChild);
  look();
};
const isText = kind => kind === 'text' || kind === 'bar';
const makeTable = (place, columns, rows, sorted = -1) => {
  const head = element('tr'), body = element('tbody'), most = 100;
  let all = false, direction = -1;
  const largest = columns.map(({kind}, i) => kind === 'bar' ? Math.max(1, ...rows.map(row => row[i][0] + row[i][1] + row[i][2])) : 0);
  const cell = (value, i) => {
    if (value === null || value === undefined) return '–';
    return columns[i].kind === 'bar' ? barOf(value, largest[i]) : texts[columns[i].kind](value);
  };
  const more = element('button', {type: 'button', class: 'more'});
  const fill = () => {
    const shown = all ? rows : rows.slice(0, most);
    body.replaceChildren(...shown.map(row => element('tr', {}, ...row.map((value, i) =>
      element('td', {class: columns[i].kind === 'text' ? 'text' : ''}, cell(value, i))))));
    more.hidden = all || rows.length <= most;
    more.textContent = `show all ${countText(rows.length)}`;
  };
  const key = value => Array.isArray(value) ? value[0] + value[1] + value[2] : value;
  const sort = column => {
    const sign = direction;
    rows.sort((a, b) => {
      const [left, right] = [key(a[column]), key(b[column])];
      if (left === right) return 0;
      if (left === null || left === undefined) return 1;
      if (right === null || right === undefined) return -1;
      return (left < right ? -1 : 1) * sign;
    });
    [...head.children].forEach((th, i) => th.setAttribute('aria-sort', i !== column ? 'none' : sign > 0 ? 'ascending' : 'descending'));
    fill();
  };
  columns.forEach(({name, kind}, column) => {
    const button = element('button', {type: 'button'}, name);
    button.addEventListener('click', () => {
      const same = column === sorted;
      direction = same ? -direction : kind === 'text' ? 1 : -1;
      sort(sorted = column);
    });
    head.append(element('th', {scope: 'col', class: isText(kind) ? 'text' : ''}, button));
  });
  more.addEventListener('click', () => { all = true; fill(); });
  if (sorted >= 0) sort(sorted); else fill();
  place.append(element('table', {}, element('thead', {}, head), body), more);
  tellWhatIsCut(place);
};

const column = (name, kind) => ({name, kind});
const groupTable = (place, what, nameOf) => {
  const groups = new Map();
  for (const [, producer, bytes, action, held, replays, time] of data.values) {
    const name = nameOf(producer);
    if (!groups.has(name)) groups.set(name, {values: 0, kept: 0, packed: 0, recomputed: 0, held: 0, replays: 0, time: 0});
    const group = groups.get(name);
    ++group.values;
    group[action] += bytes;
    group.held += held;
    group.replays += replays;
    group.time += time * 1e-9;
  }
  makeTable(find(place), [column(what, 'text'), column('values', 'count'), column('bytes', 'bar'), column('kept', 'bytes'),
    column('packed', 'bytes'), column('held packed in', 'bytes'), column('recomputed', 'bytes'),
    column('operators run again', 'count'), column('time', 'seconds')],
    [...groups].map(([name, group]) => [name, group.values, [group.kept, group.packed, group.recomputed], group.kept,
      group.packed, group.held, group.recomputed, group.replays, group.time]), 2);
};

const figureTable = () => {
  const table = element('table', {}, element('tr', {}, ...['', 'planned', 'measured', 'measured / planned'].map(
    name => element('th', {}, name))));
  for (const [what, unit, expected, measured] of data.figures) {
    const both = expected && measured !== null;
    table.append(element('tr', {}, ...[what, expected === null ? '–' : texts[unit](expected),
      measured === null ? '–' : texts[unit](measured), both ? `${(100 * measured / expected).toFixed(1)} %` : ''].map(
      text => element('td', {}, text))));
  }
  find('figures').append(table);
  tellWhatIsCut(find('figures'));
};

