"""A plot as SVG, without any library."""

import math

WIDTH, HEIGHT, MARGIN = 560, 360, 60


def decades(values):
    """The powers of ten around `values`."""
    return range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)


def power(exponent):
    return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:g}"


def log_log(x_name, y_name, points):
    """`points` joined by a line, on logarithmic axes; dashed: growth in proportion to x from the first point."""
    xs, ys = decades([x for x, _ in points]), decades([y for _, y in points])

    def place(x, y):
        across = (math.log10(x) - xs[0]) / (xs[-1] - xs[0])
        up = (math.log10(y) - ys[0]) / (ys[-1] - ys[0])
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)

    def line(ends, style):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        return f'<polyline points="{path}" fill="none" {style}/>'

    def label(x, y, words, anchor="middle"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'

    bottom, top = 10.0 ** ys[0], 10.0 ** ys[-1]
    left, right = 10.0 ** xs[0], 10.0 ** xs[-1]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for exponent in xs:
        low, high = place(10.0**exponent, bottom), place(10.0**exponent, top)
        parts += [line((low, high), 'stroke="#ddd"'), label(low[0], low[1] + 18, power(exponent))]
    for exponent in ys:
        low, high = place(left, 10.0**exponent), place(right, 10.0**exponent)
        parts += [line((low, high), 'stroke="#ddd"'), label(low[0] - 8, low[1] + 4, power(exponent), "end")]
    (x, y), last = points[0], points[-1][0]
    reach = min(last, x * top / y)
    parts.append(line((place(x, y), place(reach, y * reach / x)), 'stroke="#999" stroke-dasharray="5 4"'))
    parts.append(line([place(*point) for point in points], 'stroke="#1f77b4" stroke-width="2"'))
    parts += ['<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="#1f77b4"/>'.format(*place(*point)) for point in points]
    parts += [label(WIDTH / 2, HEIGHT - 18, x_name), label(MARGIN - 8, MARGIN - 14, y_name, "end"), "</svg>"]
    return "\n".join(parts) + "\n"
