"""Scatter plot of latency against error as a self-contained SVG.

Colours are the page's (custom properties), so that it is readable in light and in dark; text is text. The description
of a point appears below the axes while a pointer or a tap is on it, which needs no program. Points take no focus:
there may be hundreds, and the table below the picture gives the same information to a keyboard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from collage_evo.report.front import describe_point, fastest_baselines, format_budget, proved_front, timing_of
from collage_evo.report.result import Accuracy, FrontPoint
from collage_evo.report.svg import LINE, Box, format_tick, text, text_box, ticks, wrapped
from collage_evo.report.words import format_ms, format_number

WIDE, NARROW = 900, 380
"""Widths of the pictures for a screen and for a telephone, in pixels."""
GAP = 6.0
"""Distance between two labels of an axis, in pixels."""
HINT = "Point at a mark, or tap it, to read what it is."


@dataclass(frozen=True)
class Axes:
    """Both axes are logarithmic. Float32 points have a band of their own, left of the axis of errors.

    Errors of zero or less, as a metric may have, are drawn where the axis of errors begins.
    """

    errors: tuple[float, float]
    latencies: tuple[float, float]
    width: float

    @classmethod
    def around(cls, points: Sequence[FrontPoint], budget: float | None, width: float) -> Axes:
        """Axes with room for all of ``points``, at least one, and for the budget."""
        known = (*(point.error for point in points if not point.exact), budget)
        errors = [error for error in known if error is not None and error > 0.0]
        times = [point.latency_ms for point in points]
        least, most = min(errors, default=1e-3), max(errors, default=1e-3)
        return cls((least / 1.6, most * 2.0), (min(times) / 1.15, max(times) * 1.15), width)

    @property
    def plot(self) -> Box:
        """The rectangle of the points."""
        return Box(46, 16, self.width - 12, 336 if self.width > NARROW else 300)

    @property
    def band(self) -> float:
        """Width of the band for float32, whose errors are rounding and would take most of the axis."""
        return 84 if self.width > NARROW else 58

    @property
    def tip_lines(self) -> int:
        """Lines of text below the axes that describe a mark."""
        return 2 if self.width > NARROW else 4

    def of_error(self, error: float) -> float:
        """Position on the axis of errors, in pixels."""
        low, high = map(math.log, self.errors)
        start = self.plot.left + self.band
        return start + (self.plot.right - start) * (math.log(max(error, self.errors[0])) - low) / (high - low)

    def x(self, point: FrontPoint) -> float:
        return self.plot.left + self.band / 2 if point.exact else self.of_error(point.error or 0.0)

    def y(self, latency_ms: float) -> float:
        low, high = map(math.log, self.latencies)
        return self.plot.bottom - (self.plot.bottom - self.plot.top) * (math.log(latency_ms) - low) / (high - low)


def front_svg(points: Sequence[FrontPoint], accuracy: Accuracy, width: float = WIDE) -> str:
    """All of ``points`` that have an error: each single library, the answer, and a line through the fastest at each
    error.

    Marks that the final comparison timed are filled and the line connects them, since brief times are of another
    phase of the run: they may all be shorter, and a line through both would pass below the answer. Empty if no point
    has an error.
    """
    drawn = [point for point in points if point.error is not None]
    if not drawn:
        return ""
    axes, budget = Axes.around(drawn, accuracy.largest, width), format_budget(accuracy.budget)
    front = proved_front(drawn)
    path, lines = _front_line(axes, front, accuracy.largest)
    parts = [*_frame(axes, drawn), path]
    limit = None
    if accuracy.largest is not None:
        x = axes.of_error(accuracy.largest)
        limit = Box(x - 1.5, axes.plot.top, x + 1.5, axes.plot.bottom)
        parts.append(f'<line class="budget" x1="{x:.1f}" x2="{x:.1f}" y1="{limit.top}" y2="{limit.bottom}"/>')
    parts += _labels(axes, drawn, lines, limit, budget)
    below = axes.plot.bottom + 58
    parts += [_dot(axes, point, point in front, below) for point in sorted(drawn, key=_importance)]
    parts.append(text(axes.plot.left, below, HINT, "start", 'class="hint"'))
    tall = below + axes.tip_lines * LINE
    name = f"front-{width:.0f}"
    return (
        f'<svg class="front" viewBox="0 0 {width:g} {tall:g}" role="img" aria-labelledby="{name} {name}-description">'
        f'<title id="{name}">Latency against error, {escape(budget)}</title>'
        f'<desc id="{name}-description">{escape(_description(drawn, front))}</desc>{"".join(parts)}</svg>'
    )


def _description(points: Sequence[FrontPoint], front: Sequence[FrontPoint]) -> str:
    """The picture in words."""
    line = [f"{format_ms(point.latency_ms)} ms at {format_number(point.error)}" for point in front]
    fastest = f" Fastest at each error in the final comparison: {', '.join(line)}." if line else ""
    answer = [f" The answer: {format_ms(p.latency_ms)} ms at {format_number(p.error)}." for p in points if p.answer]
    return f"{len(points)} measured.{fastest}{''.join(answer)}"


def _importance(point: FrontPoint) -> tuple[bool, bool, bool]:
    """Drawing order: larger values are drawn later, on top."""
    return (point.answer, bool(point.single), point.pareto)


def _frame(axes: Axes, points: Iterable[FrontPoint]) -> Iterator[str]:
    plot = axes.plot
    start = plot.left + axes.band
    free = text_box(plot.left + axes.band / 2, plot.bottom + 16, "float32", "middle").right
    for error in ticks(*axes.errors):
        x = axes.of_error(error)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}"/>'
        label = text_box(x, plot.bottom + 16, format_tick(error), "middle")
        if label.left > free + GAP:
            yield text(x, plot.bottom + 16, format_tick(error), "middle")
            free = label.right
    for ms in ticks(*axes.latencies):
        y = axes.y(ms)
        yield f'<line class="grid" x1="{plot.left}" x2="{plot.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield text(plot.left - 6, y + 4, format_tick(ms), "end")
    yield f'<rect class="band" x="{plot.left}" y="{plot.top}" width="{axes.band}" height="{plot.bottom - plot.top}"/>'
    yield text(plot.left + axes.band / 2, plot.bottom + 16, "float32", "middle")
    yield f'<path class="axis" d="M{plot.left},{plot.top} V{plot.bottom} H{plot.right}"/>'
    yield text((start + plot.right) / 2, plot.bottom + 33, "error on samples of the search", "middle")
    yield text(2, 10, "latency (ms)", "start")


def _front_line(axes: Axes, front: Sequence[FrontPoint], budget: float | None) -> tuple[str, list[Box]]:
    """Line through ``front``, as far as the budget or its last point; and the boxes of the lines. Empty without
    points."""
    if not front:
        return "", []
    lines: list[Box] = []
    x, y = axes.x(front[0]), axes.y(front[0].latency_ms)
    path = f"M{x:.1f},{y:.1f}"
    for point in front[1:]:
        right, down = axes.x(point), axes.y(point.latency_ms)
        path += f" H{right:.1f} V{down:.1f}"
        lines += [Box(x, y - 1.5, right, y + 1.5), Box(right - 1.5, y, right + 1.5, down)]
        x, y = right, down
    end = axes.plot.right if budget is None else max(x, axes.of_error(budget))
    lines.append(Box(x, y - 1.5, end, y + 1.5))
    return f'<path class="step" d="{path} H{end:.1f}"/>', lines


def _dot(axes: Axes, point: FrontPoint, on_line: bool, below: float) -> str:
    fastest = on_line or (point.pareto and not point.raced)
    kind = "answer" if point.answer else "single" if point.single else "pareto" if fastest else "placement"
    radius = {"answer": 7, "single": 4.5, "pareto": 3.5, "placement": 2.5}[kind]
    description = f"{format_ms(point.latency_ms)} ms, error {format_number(point.error)}, timed {timing_of(point)}"
    description += f": {describe_point(point)}"
    x, y = axes.x(point), axes.y(point.latency_ms)
    lines = wrapped(description, axes.plot.right - axes.plot.left)[: axes.tip_lines]
    tip = "".join(text(axes.plot.left, below + k * LINE, line, "start") for k, line in enumerate(lines))
    where = f'cx="{x:.1f}" cy="{y:.1f}"'
    brief = "" if point.raced else " brief"
    return (
        f'<g class="point"><circle class="reach" {where} r="9"/>'
        f'<circle class="{kind}{brief}" {where} r="{radius}"><title>{escape(description)}</title></circle>'
        f'<g class="tip">{tip}</g></g>'
    )


def _labels(
    axes: Axes, points: Sequence[FrontPoint], lines: Sequence[Box], limit: Box | None, budget: str
) -> Iterator[str]:
    """Names of the answer, of the budget and of single libraries, where they cover no line, point or other name.

    A name without such a place is omitted: pointing at its dot shows it.
    """
    taken = [*lines, *([limit] if limit else [])]
    for point in points:
        x, y = axes.x(point), axes.y(point.latency_ms)
        reach = 6 if point.answer or point.pareto or point.single else 3
        taken.append(Box(x - reach, y - reach, x + reach, y + reach))
    if limit is not None:
        yield from _placed(axes, taken, (limit.left + 1.5, axes.plot.top + 8), budget, 'class="limit"', reach=4)
    for point in dict.fromkeys((*(p for p in points if p.answer), *fastest_baselines(points))):
        name = point.what or point.single
        if point.answer:
            name = "the answer"
        at = axes.x(point), axes.y(point.latency_ms)
        yield from _placed(axes, taken, at, name, 'class="bold"' if point.answer else "")


def _placed(
    axes: Axes, taken: list[Box], at: tuple[float, float], name: str, style: str, reach: int = 8
) -> Iterator[str]:
    """``name`` next to ``at`` or some lines above or below it, with a line that leads there; empty if there is no
    room."""
    for dx, dy, anchor in _places(reach):
        x, y = at[0] + dx, at[1] + dy
        box = text_box(x, y, name, anchor)
        leader = Box(min(at[0], x) - 1, min(at[1], y - 4), max(at[0], x) + 1, max(at[1], y - 4))
        far = abs(dy) > 1.5 * LINE
        others = [other for other in taken if not _around(other, at)] if far else []
        if box.inside(axes.plot) and not any(map(box.meets, taken)) and not any(map(leader.meets, others)):
            taken += [box, *([leader] if far else [])]
            if far:
                yield f'<line class="leader" x1="{at[0]:.1f}" y1="{at[1]:.1f}" x2="{x:.1f}" y2="{y - 4:.1f}"/>'
            yield text(x, y, name, anchor, style)
            return


def _around(box: Box, at: tuple[float, float]) -> bool:
    """Whether ``at`` lies in ``box``, as a point does in its own."""
    return box.left <= at[0] <= box.right and box.top <= at[1] <= box.bottom


def _places(reach: int) -> Iterator[tuple[float, float, str]]:
    """Offsets and the end of the label that is there: to the side, above, below, then further and further up and
    down."""
    yield from ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 17, "middle"))
    for lines in range(1, reach + 1):
        for offset in (-lines * LINE + 4, lines * LINE + 4):
            yield from ((12, offset, "start"), (-12, offset, "end"))
