"""Pictures of the page as SVG: matplotlib draws axes, lines and names in the page's colours, for light and for dark.

The description of a mark appears below the axes while a pointer or a tap is on it, which needs no program. Marks take
no focus: there may be hundreds, and the table below the picture gives the same information to a keyboard.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from collage_evo.report.accuracy import format_budget
from collage_evo.report.front import (
    MOST,
    describe_point,
    fastest_baselines,
    proved_front,
    shown,
    spread_of,
    timing_of,
)
from collage_evo.report.result import Accuracy, FrontPoint
from collage_evo.report.sizes import ANSWER, LatencyBySize
from collage_evo.report.words import format_ms, format_number, format_tick

WIDE, NARROW = 900, 380
"""Widths of the pictures for a screen and for a telephone, in pixels."""
LEFT, RIGHT = 46, 12
"""Room for labels beside the axes."""
HINT = "Point at a mark, or tap it, to read what it is."
LEGEND = (
    "Blue: libraries. Green and grey: placements. Hollow: timed briefly, not in the final comparison. Line: the "
    "fastest within each error. Both scales are logarithmic."
)
LETTER, LINE = 6.4, 14
"""Approximate size of a letter and of a line of text, in pixels."""
INK, DIM, GRID, CARD, MARK, LIMIT, SINGLE = (f"#00000{k}" for k in range(1, 8))
"""Colours for matplotlib, each of which stands for a property of the page."""
_PROPERTIES = {INK: "ink", DIM: "dim", GRID: "line", CARD: "card", MARK: "mark", LIMIT: "limit", SINGLE: "single"}
_RADII = {"answer": 7, "single": 4.5, "pareto": 3.5, "placement": 2.5}
DASHES = ((), (6, 2), (2, 2), (6, 2, 2, 2))
"""Lengths of dashes and gaps of each line, in widths of the line: the answer's comes first and has none."""
Spot = tuple[float, float]
"""A place: by an axis's values, or in pixels."""
Box = tuple[float, float, float, float]
"""Left, bottom, right and top of an occupied rectangle, in pixels."""


def front_svg(points: Sequence[FrontPoint], accuracy: Accuracy, width: float = WIDE, legend: bool = False) -> str:
    """All of ``points`` that have an error: each single library, the answer, and a line through the fastest at each
    error. Both axes are logarithmic; an error of zero or less, as a metric may have, is where its axis begins.

    Marks that the final comparison timed are filled and the line connects them, since brief times are of another
    phase of the run: they may all be shorter, and a line through both would pass below the answer. Empty if no point
    has an error. ``legend``: below the picture stands what its marks are, which a page says beside it.
    """
    drawn = [point for point in points if point.error is not None]
    if not drawn:
        return ""
    limit, narrow, height = accuracy.largest, width == NARROW, 358
    bounds = (*(point.error for point in drawn if not point.exact), limit)
    errors = [error for error in bounds if error is not None and error > 0.0]
    low, high = math.log10(min(errors, default=1e-3) / 1.6), math.log10(max(errors, default=1e-3) * 2.0)
    times = [point.latency_ms for point in drawn]
    axes = _axes(width, height, 60, "error on samples of the search")
    # Errors in float32 are rounding and would take most of the axis: they have a band of their own.
    band = (high - low) * (0.28 if narrow else 0.11)
    axes.set(xlim=(low - band, high), ylim=(min(times) / 1.15, max(times) * 1.15), yscale="log")
    _label(axes, low, low - band / 2, narrow)

    def place(point: FrontPoint) -> tuple[float, float]:
        error = max(point.error or 0.0, 10**low)
        return low - band / 2 if point.exact else math.log10(error), point.latency_ms

    front = proved_front(drawn)
    line = [place(point) for point in front]
    if line:
        end = high if limit is None else max(line[-1][0], math.log10(limit))
        line.append((end, line[-1][1]))
        axes.step(*zip(*line, strict=True), where="post", color=MARK, linewidth=2, gid="step")
    some = drawn if len(drawn) <= 2 * MOST else shown(drawn)
    chosen = {*fastest_baselines(drawn), *(point for point in some if point.answer or not point.single)}
    points = sorted(chosen, key=lambda point: (not point.answer, not point.raced, point.latency_ms))
    names = ((ANSWER if point.answer else point.what or point.single, point) for point in points)
    named = [(f"{name} {format_ms(point.latency_ms)} ms", *place(point)) for name, point in names]
    budget = format_budget(accuracy.budget)
    top = None if limit is None else (math.log10(limit), max(times) * 1.08)
    if top is not None:
        axes.axvline(top[0], color=LIMIT, linewidth=1.5, dashes=(4, 3), gid="budget")
        named.insert(0, (budget, *top))
    _add_names(axes, named, [place(point) for point in drawn], line, top)
    rows = [("hint legend", row) for row in _wrapped(LEGEND, width)] if legend else [("hint", HINT)]
    tips = {id(point): _wrapped(_tip(point), width) for point in drawn}
    lines, above = max(len(rows), *map(len, tips.values())), []
    for point in sorted(drawn, key=lambda point: (point.answer, bool(point.single), point.pareto)):
        x, y = axes.transData.transform(place(point))
        where = f'cx="{x:.1f}" cy="{height - y:.1f}"'
        above.append(_mark(point, where, point in front, height, tips[id(point)]))
    for k, (kind, row) in enumerate(rows):
        above.append(f'<text class="{kind}" x="{LEFT}" y="{height + k * LINE}">{row}</text>')
    title, described = f"Latency against error, {budget}", _description(drawn, front)
    return _svg(axes, "front", height + lines * LINE, title, described, above)


def curve_svg(points: Sequence[Mapping[str, float]]) -> str:
    """Steps downwards (ms over s); empty for less than two points."""
    if len(points) < 2:
        return ""
    times, seconds = [point["best_ms"] for point in points], [point["seconds"] for point in points]
    end = max(seconds) or 1.0
    axes = _axes(NARROW, 190, 40, "seconds of search")
    axes.set(xlim=(0.0, end), ylim=(min(times) * 0.95, max(times) * 1.05))
    axes.step([*seconds, end], [*times, times[-1]], where="post", color=MARK, linewidth=2, gid="step")
    return _svg(axes, "front curve", 190, "Best time so far, in ms, over the seconds of the search")


def sizes_svg(sizes: LatencyBySize, width: float = WIDE) -> str:
    """Latency over the size of the inputs: a line for the answer and for each library. Both axes are logarithmic, so
    that a line below another one by the same distance is faster by the same factor. Empty for less than two sizes.
    """
    if len({one.size for one in sizes.times}) < 2:
        return ""
    from matplotlib.ticker import LogLocator, NullLocator

    height, bottom, every = 280, 40, [ms for one in sizes.times for ms in one.ms.values()]
    axes, low, high = _axes(width, height, bottom, sizes.what), min(every) / 1.3, max(every) * 1.3
    names = (LINE + 6) * len(sizes.names) / (height - bottom - 18)  # their share of the axis, above all lines
    high *= (high / low) ** (names / (1 - names))
    axes.set(xscale="log", yscale="log", xlim=(sizes.times[0].size / 1.1, sizes.times[-1].size * 1.1))
    axes.set(ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: format_tick(value))
    axes.text(0, 1.01, "latency (ms)", color=INK, fontsize=12, ha="left", transform=axes.transAxes)
    lines = {name: [(one.size, one.ms[name]) for one in sizes.times if name in one.ms] for name in sizes.names}
    marks: list[str] = []
    for (name, line), dashes in zip(lines.items(), itertools.cycle(DASHES)):
        kind, colour, radius, order = ("answer", MARK, 4, 3) if name == ANSWER else ("single", SINGLE, 3, 2)
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=2, dashes=dashes, label=name, zorder=order)
        for size, ms in reversed(line):
            x, y = axes.transData.transform((size, ms))
            words = escape(f"{name}: {format_ms(ms)} ms at {sizes.what} {size}")
            where = f'cx="{x:.1f}" cy="{height - y:.1f}" r="{radius}"'
            marks.insert(0, f'<circle class="{kind}" {where}><title>{words}</title></circle>')  # the answer's on top
    axes.legend(loc="upper left", frameon=False, labelcolor=INK, fontsize=12)
    described = ". ".join(
        f"{name}: {', '.join(f'{format_ms(ms)} ms at {n}' for n, ms in line)}" for name, line in lines.items()
    )
    return _svg(axes, "front sizes", height, f"Latency over {sizes.what}", described, marks)


def _axes(width: float, height: float, bottom: float, label: str) -> Any:
    """Axes with labels outside; one unit of the figure is a pixel of the page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    plot = (LEFT / width, bottom / height, (width - LEFT - RIGHT) / width, (height - bottom - 18) / height)
    axes = figure.add_axes(plot)
    axes.tick_params(which="both", length=0, labelsize=12, labelcolor=INK)
    axes.grid(color=GRID, alpha=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(DIM)
    axes.set_xlabel(label, color=INK, fontsize=12, parse_math=False)
    axes.locator_params(nbins=4)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: format_tick(value))
    return axes


def _label(axes: Any, low: float, exact: float, narrow: bool) -> None:
    """Round numbers at both axes, and the band for float32, whose middle is ``exact`` and whose end is ``low``."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: format_tick(value))
    left, high = axes.get_xlim()
    digits = (1, 2, 5) if high - low < (1.5 if narrow else 3.0) else (1,)
    ticks = [math.log10(n) + power for power in range(math.floor(low), math.ceil(high)) for n in digits]
    free = low + (low - exact) / 2 if narrow else low  # a label before that would meet that of the band
    ticks = [tick for tick in ticks if free < tick < high]
    ticks = ticks[:: math.ceil(len(ticks) / (5 if narrow else 12)) or 1]
    axes.set_xticks([exact, *ticks], ["float32", *(format_tick(float(f"{10**tick:.1g}")) for tick in ticks)])
    axes.axvspan(left, low, facecolor=CARD, edgecolor="none", zorder=1)
    axes.text(0, 1.01, "latency (ms)", color=INK, fontsize=12, ha="left", transform=axes.transAxes)


def _add_names(
    axes: Any,
    named: Sequence[tuple[str, float, float]],
    points: Sequence[Spot],
    line: Sequence[Spot],
    limit: Spot | None,
) -> None:
    """Each name where it covers no line, point or other name; one without such a place is omitted.

    Pointing at its mark shows it then.
    """
    pixels: Callable[[Spot], Spot] = axes.transData.transform
    occupied: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in map(pixels, points)]
    for (x, y), (right, down) in itertools.pairwise(map(pixels, line)):
        occupied += [(x, y - 2, right, y + 2), (right - 2, down, right + 2, y)]
    left, bottom, right, top = axes.bbox.extents
    if limit is not None:
        occupied.append((pixels(limit)[0] - 2, bottom, pixels(limit)[0] + 2, top))
    near = [(9, 0, "left"), (-9, 0, "right"), (0, 14, "center"), (0, -14, "center")]
    far = [(dx, LINE * k * sign, end) for k in range(1, 9) for sign in (1, -1) for dx, _, end in near[:2]]
    names: list[Box] = []
    for name, *spot in named:
        (x, y), wide = pixels((spot[0], spot[1])), LETTER * len(name)
        for dx, dy, end in (*near, *far):
            start = x + dx - {"left": 0.0, "center": wide / 2, "right": wide}[end]
            box = (start, y + dy - 7, start + wide, y + dy + 7)
            leader = (min(x, x + dx), min(y, y + dy), max(x, x + dx), max(y, y + dy))
            inside = left <= box[0] and box[2] <= right and bottom <= box[1] and box[3] <= top
            if inside and not any(map(_meets(box), occupied)) and not any(map(_meets(leader), names)):
                occupied.append(box)
                names.append(box)
                leads = {"arrowstyle": "-", "color": DIM, "linewidth": 0.8, "relpos": (float(end == "right"), 0.5)}
                axes.annotate(
                    name, spot, (dx, dy), textcoords="offset points", ha=end, va="center", fontsize=12, gid="name",
                    color=LIMIT if (spot[0], spot[1]) == limit else INK, arrowprops=leads if abs(dy) > LINE else None,
                    fontweight="bold" if name.startswith(ANSWER) else "normal",
                )  # fmt: skip
                break


def _meets(box: Box) -> Callable[[Box], bool]:
    return lambda other: box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _tip(point: FrontPoint) -> str:
    """What a mark is."""
    spread = spread_of(point)
    ms = format_ms(point.latency_ms) + (f" ({spread})" if spread else "")
    return f"{ms} ms, error {point.others}, timed {timing_of(point)}: {describe_point(point)}"


def _mark(point: FrontPoint, where: str, on_line: bool, below: float, lines: Sequence[str]) -> str:
    """A point as a mark, whose description in ``lines`` stands from ``below`` on."""
    fastest = on_line or (point.pareto and not point.raced)
    kind = "answer" if point.answer else "single" if point.single else "pareto" if fastest else "placement"
    tip = "".join(f'<text x="{LEFT}" y="{below + k * LINE}">{escape(one)}</text>' for k, one in enumerate(lines))
    brief = "" if point.raced else " brief"
    return (
        f'<g class="point"><circle class="reach" {where} r="9"/>'
        f'<circle class="{kind}{brief}" {where} r="{_RADII[kind]}"><title>{escape(_tip(point))}</title></circle>'
        f'<g class="tip">{tip}</g></g>'
    )


def _wrapped(words: str, width: float) -> list[str]:
    """``words`` in lines that fit into a picture of ``width``."""
    return textwrap.wrap(words, int((width - LEFT - RIGHT) / LETTER), break_long_words=False)


def _description(points: Sequence[FrontPoint], front: Sequence[FrontPoint]) -> str:
    """The picture in words."""
    line = [f"{format_ms(point.latency_ms)} ms at {format_number(point.error)}" for point in front]
    fastest = f" Fastest at each error in the final comparison: {', '.join(line)}." if line else ""
    answer = [f" The answer: {format_ms(p.latency_ms)} ms at {format_number(p.error)}." for p in points if p.answer]
    return f"{len(points)} measured.{fastest}{''.join(answer)}"


def _svg(axes: Any, kind: str, height: float, title: str, description: str = "", more: Sequence[str] = ()) -> str:
    """The figure of ``axes`` as an element of the page, in its font and colours, with ``more`` elements on top."""
    from matplotlib import rc_context

    content, nothing = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none"}):
        axes.figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    drawn = re.sub(r' id="(step|budget|name)"', r' class="\1"', content.getvalue())
    drawn = drawn[drawn.index("<g ") : drawn.rindex("</g>") + 4]
    drawn = re.sub(r' (?:id|clip-path)="[^"]*"|<!--.*?-->|font-family: [^;"]*;? ?|\n', "", drawn)
    for colour, name in _PROPERTIES.items():
        drawn = drawn.replace(colour, f"var(--{name})")
    width = axes.figure.get_figwidth() * 72
    name = f"{kind.split()[-1]}-{width:.0f}"
    labels = f"{name} {name}-description" if description else name
    described = f'<desc id="{name}-description">{escape(description)}</desc>' if description else ""
    head = f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="{labels}">'
    return f'{head}<title id="{name}">{escape(title)}</title>{described}{drawn}{"".join(more)}</svg>'
