'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const KEPT = 3, PACKED = 4, RECOMPUTED = 6;  // places among the parts
const find = id => document.getElementById(id);

// What is drawn.

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const shape = (name, attributes = {}, ...children) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

// Numbers for people.

const digits = value => value >= 99.95 ? value.toFixed(0) : value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
const unitOf = (size, units) => units.find(([, factor]) => size >= factor) || units[units.length - 1];
const byteUnits = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 1024], ['bytes', 1]];
const secondUnits = [['s', 1], ['ms', 1e-3], ['µs', 1e-6]];
const bytesText = bytes => {
  const [unit, factor] = unitOf(Math.abs(bytes), byteUnits);
  return !bytes ? '0' : factor === 1 ? `${bytes} bytes` : `${digits(bytes / factor)} ${unit}`;
};
const secondsText = seconds => {
  if (!seconds) return '0';
  const [unit, factor] = unitOf(seconds, secondUnits);
  return `${digits(seconds / factor)} ${unit}`;
};
const countText = count => Number(count).toLocaleString('en-US');
const texts = {bytes: bytesText, seconds: secondsText, count: countText, text: String};

// The timelines, spread out again.

const spread = step => {
  if (!step) return null;
  const count = step.times.length, times = new Float64Array(count + 1), totals = new Float64Array(count);
  let now = 0;
  step.times.forEach((difference, moment) => times[moment] = now += difference);
  times[count] = Math.max(now, step.end);
  const parts = step.parts.map(changes => {
    const bytes = new Float64Array(count);
    for (let i = 0; i < changes.length; i += 2) {
      bytes.fill(changes[i + 1], changes[i], i + 2 < changes.length ? changes[i + 2] : count);
    }
    bytes.forEach((part, moment) => totals[moment] += part);
    return bytes;
  });
  let peak = 0;
  totals.forEach((total, moment) => { if (total > totals[peak]) peak = moment; });
  return {...step, count, times, parts, totals, peak};
};
const plain = spread(data.plain), planned = spread(data.step);
// The recorded step has what replays begin with, too: then its peak is above plain's.
const plainName = plain.totals[plain.peak] === data.plain_peak ? 'plain' : 'all kept';
const operatorName = op => data.names[data.operators.name[op]];
const layerOf = op => data.layers.length ? data.layers[data.operators.layer[op]] : '';
const clock = time => data.timed ? secondsText(time * 1e-9) : `event ${Math.round(time)}`;
const producers = new Map(data.values.map(row => [row[0], row[1]]));

const workText = (step, moment) => {
  const op = step.indexes[moment], value = step.values[moment], name = op < 0 ? '' : operatorName(op);
  const made = producers.has(value) ? `, made by ${operatorName(producers.get(value))}` : '';
  return {
    f: [name || 'between operators', op < 0 ? '' : `forward, operator ${op}`],
    b: [name || 'backward', `backward${op < 0 ? '' : ` of operator ${op}`}`],
    r: [name, `operator ${op} runs again, for value ${value}${made}`],
    u: ['unpack', `value ${value}${made}`],
  }[step.work[moment]];
};

// The picture.

const fills = data.parts.map((_, part) => `url(#part${part})`);
const swatch = part => shape('svg', {'aria-hidden': true}, shape('rect', {width: '100%', height: '100%', fill: fills[part]}));
const patterns = () => {
  const marks = [
    [], [['circle', {cx: 3, cy: 3, r: 1.1, fill: '#000', stroke: 'none'}]], [['path', {d: 'M3 0V8'}]], [],
    [['path', {d: 'M-2 2L2 -2M0 8L8 0M6 10L10 6', stroke: '#fff'}]], [['path', {d: 'M0 4H8'}]],
    [['path', {d: 'M-2 6L2 10M0 0L8 8M6 -2L10 2', stroke: '#fff'}]],
  ];
  return shape('defs', {}, ...data.parts.map(({color}, part) => shape(
    'pattern', {id: `part${part}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse'},
    shape('rect', {width: 8, height: 8, fill: color}),
    ...marks[part].map(([name, attributes]) => shape(name, {stroke: '#000', 'stroke-opacity': .55, ...attributes})))));
};
document.body.append(shape('svg', {width: 0, height: 0, style: 'position:absolute'}, patterns()));

const chart = {
  svg: shape('svg', {role: 'img', tabindex: 0, 'aria-label': 'Memory over the step; arrow keys go through its moments'}),
  step: planned || plain, other: planned ? plain : null,
  end: Math.max(plain.times[plain.count], planned ? planned.times[planned.count] : 0) || 1,
  from: 0, to: 0, moment: -1, anchor: null,
  most: Math.max(plain.totals[plain.peak], planned ? planned.totals[planned.peak] : 0),
};
chart.to = chart.end;
// A budget that is far beyond what the step takes is no part of the picture.
const budget = data.budget > 0 && data.budget <= 1.5 * chart.most ? data.budget : 0;
chart.most = 1.06 * Math.max(chart.most, budget, 1);

const ticks = (largest, most) => {
  const power = 10 ** Math.floor(Math.log10(largest / most));
  return [1, 2, 5, 10].map(round => round * power).find(distance => distance * most >= largest * (1 - 1e-9));
};
const timeX = time => chart.left + (time - chart.from) / (chart.to - chart.from) * (chart.right - chart.left);
const bytesY = bytes => chart.bottom - bytes / chart.most * (chart.bottom - chart.top);
const momentAt = (step, time) => {  // the last that has begun
  let low = 0, high = step.count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (step.times[middle] <= time) low = middle; else high = middle - 1;
  }
  return low;
};
// For each column of the picture the moment in which the most is alive; none after the end of the step.
const columnsOf = step => {
  const count = Math.max(1, Math.floor((chart.right - chart.left) / 1.5)), width = (chart.to - chart.from) / count;
  const columns = [];
  for (let column = 0; column < count; ++column) {
    const begin = chart.from + column * width;
    if (begin >= step.times[step.count]) break;
    let best = momentAt(step, begin);
    while (best > 0 && step.times[best - 1] >= begin) --best;
    for (let moment = best + 1; moment < step.count && step.times[moment] < begin + width; ++moment) {
      if (step.totals[moment] > step.totals[best]) best = moment;
    }
    columns.push(best);
  }
  return {moments: columns, width: (chart.right - chart.left) / count};
};
const outline = (columns, height) => {
  let path = `M${chart.left} ${chart.bottom}`;
  columns.moments.forEach((moment, column) => {
    path += `V${bytesY(height(moment)).toFixed(1)}H${(chart.left + (column + 1) * columns.width).toFixed(1)}`;
  });
  return path;
};
const label = (x, y, anchor, text, kind = 'halo') => shape('text', {x, y, 'text-anchor': anchor, class: kind}, text);
// The first of the places, [x, y, anchor], where the text stays between the axes and touches no other; none where there is none.
const freePlace = (taken, text, ...places) => places.find(([x, y, anchor]) => {
  const width = 7.2 * text.length, left = anchor === 'end' ? x - width : x, right = left + width;
  const touches = box => left < box.right && box.left < right && Math.abs(y - box.y) < 16;
  if (left < chart.left || right > chart.right + 8 || taken.some(touches)) return false;
  taken.push({left, right, y});
  return true;
});
const line = (x1, y1, x2, y2, kind) => shape('line', {x1, y1, x2, y2, class: kind});

const drawAxes = add => {
  const [unit, factor] = unitOf(chart.most / 1.06, byteUnits), distance = ticks(chart.most / factor, 5);
  for (let i = 0; i * distance * factor <= chart.most; ++i) {
    const y = bytesY(i * distance * factor);
    add(line(chart.left, y, chart.right, y, i ? 'grid' : 'axis'));
    add(label(chart.left - 8, y + 4.5, 'end', String(+(i * distance).toFixed(3)), 'soft'));
  }
  add(label(chart.left - 8, chart.top - 12, 'end', unit, 'soft'));
  const [timeUnit, timeFactor] = data.timed ? unitOf((chart.to - chart.from) * 1e-9, secondUnits) : ['event', 1e-9];
  const scale = timeFactor * 1e9, apart = ticks((chart.to - chart.from) / scale, Math.max(3, chart.right / 130));
  for (let tick = Math.ceil(chart.from / scale / apart); tick * apart * scale <= chart.to; ++tick) {
    const x = timeX(tick * apart * scale);
    add(line(x, chart.bottom, x, chart.bottom + 5, 'axis'));
    add(label(x, chart.bottom + 20, 'middle', String(+(tick * apart).toPrecision(6)), 'soft'));
  }
  add(label((chart.left + chart.right) / 2, chart.bottom + 38, 'middle', `time in the step, ${timeUnit}`, 'soft'));
};

const draw = () => {
  const width = Math.max(280, find('chart').clientWidth), height = width < 600 ? 320 : 440;
  Object.assign(chart, {left: 54, right: width - 8, top: 40, bottom: height - 46});
  chart.svg.replaceChildren();
  chart.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  chart.svg.setAttribute('height', height);
  const add = made => chart.svg.append(made);
  const {step, other} = chart;
  drawAxes(add);
  const otherOutline = other && outline(columnsOf(other), moment => other.totals[moment]);
  if (other) add(shape('path', {d: `${otherOutline}V${chart.bottom}`, class: 'behind'}));
  chart.columns = columnsOf(step);
  for (let part = data.parts.length; part-- > 0;) {
    const height = moment => {
      let sum = 0;
      for (let below = 0; below <= part; ++below) sum += step.parts[below][moment];
      return sum;
    };
    add(shape('path', {d: `${outline(chart.columns, height)}V${chart.bottom}`, fill: fills[part]}));
  }
  if (other) add(shape('path', {d: otherOutline, class: 'other'}));
  const taken = [], backward = timeX(step.backward);
  if (step.backward > chart.from && step.backward < chart.to) {
    add(line(backward, chart.top - 30, backward, chart.bottom, 'axis'));
    for (const [text, x, anchor] of [['forward', backward - 8, 'end'], ['backward', backward + 8, 'start']]) {
      const place = freePlace(taken, text, [x, chart.top - 20, anchor]);
      if (place) add(label(...place, text, 'soft'));
    }
  } else {
    add(label(chart.left, chart.top - 20, 'start', step.backward <= chart.from ? 'backward' : 'forward', 'soft'));
  }
  if (budget) {
    const y = bytesY(budget);
    add(line(chart.left, y, chart.right, y, 'budget'));
    const text = `budget ${bytesText(budget)}`, place = freePlace(taken, text, [chart.right - 4, y + 15, 'end']);
    if (place) add(label(...place, text));
  }
  for (const [named, name] of [[plain, plainName], [planned, 'under the plan']]) {
    if (!named || named.times[named.peak] < chart.from || named.times[named.peak] > chart.to) continue;
    const x = timeX(named.times[named.peak]), y = bytesY(named.totals[named.peak]) - 5, left = x > (chart.left + chart.right) / 2;
    const before = [x - 8, 'end'], behind = [x + 8, 'start'];
    const sides = left ? [before, behind, [chart.left + 4, 'start']] : [behind, before, [chart.right - 4, 'end']];
    const text = `${name}: ${bytesText(named.totals[named.peak])}`;
    const place = freePlace(taken, text, ...[0, 17, 34].flatMap(down => sides.map(([at, anchor]) => [at, y + down, anchor])));
    if (place) add(label(...place, text));
  }
  chart.cross = line(0, chart.top, 0, chart.bottom, 'cross');
  chart.selection = shape('rect', {y: chart.top, height: chart.bottom - chart.top, class: 'selection', visibility: 'hidden'});
  chart.svg.append(chart.selection, chart.cross);
  show(chart.moment);
};

const tip = find('tip');
const show = moment => {
  const {step} = chart;
  chart.moment = moment;
  fillLegend(moment < 0 ? step.peak : moment, moment < 0 ? 'at the peak' : 'here');
  const x = moment < 0 ? -1 : timeX(Math.max(step.times[moment], chart.from));
  tip.hidden = moment < 0 || x < chart.left - 1 || x > chart.right + 1;
  chart.cross.setAttribute('visibility', tip.hidden ? 'hidden' : 'visible');
  if (tip.hidden) return;
  chart.cross.setAttribute('x1', x);
  chart.cross.setAttribute('x2', x);
  const [name, does] = workText(step, moment), layer = step.indexes[moment] < 0 ? '' : layerOf(step.indexes[moment]);
  tip.replaceChildren(element('b', {}, name), ...[layer && `layer ${layer}`, does, `at ${clock(step.times[moment])}`,
    `${bytesText(step.totals[moment])} alive`].filter(Boolean).map(text => element('div', {}, text)));
  const room = find('chart').clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(room, x < (chart.left + chart.right) / 2 ? x + 12 : x - tip.offsetWidth - 12))}px`;
  tip.style.top = `${chart.top + 4}px`;
};

const fillLegend = (moment, where) => {
  const rows = data.parts.map(({label: name}, part) => [name, part, chart.step.parts[part]]).filter(
    ([, , bytes]) => bytes.some(Boolean)).reverse().map(([name, part, bytes]) => element('tr', {},
      element('td', {}, swatch(part), name), element('td', {}, bytesText(bytes[moment]))));
  find('legend').replaceChildren(element('tr', {}, element('th', {}, 'memory'), element('th', {}, where)), ...rows,
    element('tr', {}, element('th', {}, 'all'), element('th', {}, bytesText(chart.step.totals[moment]))));
};

const zoom = (from, to) => {
  const least = chart.end / 1e6;
  chart.from = Math.max(0, Math.min(from, chart.end - least));
  chart.to = Math.min(chart.end, Math.max(to, chart.from + least));
  find('whole').disabled = chart.from === 0 && chart.to === chart.end;
  draw();
};
const pointerX = event => {
  const box = chart.svg.getBoundingClientRect();
  return Math.max(chart.left, Math.min(chart.right, event.clientX - box.left));
};
const xTime = x => chart.from + (x - chart.left) / (chart.right - chart.left) * (chart.to - chart.from);
const listen = () => {
  const {svg} = chart;
  svg.addEventListener('pointermove', event => {
    const x = pointerX(event);
    const column = Math.min(chart.columns.moments.length - 1, Math.floor((x - chart.left) / chart.columns.width));
    show(chart.columns.moments[column]);
    if (chart.anchor === null) return;
    chart.selection.setAttribute('x', Math.min(x, chart.anchor));
    chart.selection.setAttribute('width', Math.abs(x - chart.anchor));
    chart.selection.setAttribute('visibility', 'visible');
  });
  svg.addEventListener('pointerdown', event => {
    chart.anchor = pointerX(event);
    if (event.pointerType === 'mouse') svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointerup', event => {
    const x = pointerX(event), anchor = chart.anchor;
    chart.anchor = null;
    chart.selection.setAttribute('visibility', 'hidden');
    if (anchor !== null && Math.abs(x - anchor) > 6) zoom(xTime(Math.min(x, anchor)), xTime(Math.max(x, anchor)));
  });
  svg.addEventListener('pointercancel', () => { chart.anchor = null; chart.selection.setAttribute('visibility', 'hidden'); });
  svg.addEventListener('pointerleave', event => { if (chart.anchor === null && event.pointerType === 'mouse') show(-1); });
  svg.addEventListener('dblclick', () => zoom(0, chart.end));
  svg.addEventListener('keydown', event => {
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === 'Escape') { show(-1); zoom(0, chart.end); }
    if (!by) return;
    event.preventDefault();
    show(Math.max(0, Math.min(chart.step.count - 1, (chart.moment < 0 ? chart.step.peak : chart.moment + by))));
  });
  find('whole').addEventListener('click', () => zoom(0, chart.end));
  new ResizeObserver(draw).observe(find('chart'));
};
const choose = () => {
  if (!planned) return;
  for (const [text, step, other] of [['under the plan', planned, plain], [plainName, plain, planned]]) {
    const radio = element('input', {type: 'radio', name: 'step'});
    radio.checked = step === chart.step;
    radio.addEventListener('change', () => {
      Object.assign(chart, {step, other, moment: -1});
      draw();
    });
    find('shown').append(element('label', {}, radio, ' ', text));
  }
};

const summary = () => {
  const plainPeak = data.plain_peak;
  let text = `Plain peaks at ${bytesText(plainPeak)}`;
  if (planned) {
    const peak = planned.totals[planned.peak], share = 100 * (peak - data.baseline) / (plainPeak - data.baseline);
    text += `, under the plan the step peaks at ${bytesText(peak)}`;
    if (isFinite(share)) text += `: ${share.toFixed(1)} % of plain's activation peak`;
    const extra = data.timed ? planned.end / plain.end - 1 : NaN;
    const expected = isFinite(extra) ? `${(100 * extra).toFixed(1)} % more time` : '';
    // What was measured goes before what was planned by the times of another step.
    if (data.cost !== null) {
      text += `, for ${data.cost.toFixed(1)} % more time, as measured${expected ? ` (planned: ${expected})` : ''}`;
    } else if (expected) {
      text += `, for ${expected}, as planned`;
    }
  }
  if (data.budget) text += `. The budget is ${bytesText(data.budget)}`;
  if (data.decided) text += `. Decided by: ${data.decided}${data.reason ? ` (${data.reason})` : ''}`;
  if (!data.completed) text += '. The step did not complete';
  find('summary').textContent = `${text}.`;
  document.querySelector('h1').textContent = data.name || 'Memory of a step';
};

summary();
figureTable();
find('chart').prepend(chart.svg);
choose();
listen();
draw();
if (data.layers.length) {
  find('layers-section').hidden = false;
  groupTable('layers', 'layer', producer => layerOf(producer) || '(no layer)');
}
groupTable('operators', 'operator', operatorName);
find('replayed-section').hidden = data.replayed.length === 0;
makeTable(find('replayed'), [column('operator', 'text'), column('times, planned', 'count'), column('time, planned', 'seconds'),
  column('times, measured', 'count'), column('time, measured', 'seconds')], data.replayed, 2);
makeTable(find('values'), [column('value', 'count'), column('made by', 'text'), ...(data.layers.length ? [column('layer', 'text')] : []),
  column('bytes', 'bytes'), column('what becomes of it', 'text'), column('held in', 'bytes'), column('operators run again', 'count'),
  column('time', 'seconds')], data.values.map(([value, producer, bytes, action, held, replays, time]) =>
  [value, `${operatorName(producer)} (operator ${producer})`, ...(data.layers.length ? [layerOf(producer)] : []), bytes, action,
    action === 'kept' ? bytes : held, replays, time * 1e-9]), data.layers.length ? 3 : 2);
