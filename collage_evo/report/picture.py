"""Latency against error as a picture: takes the points of a result, gives SVG that stands by itself in a page.

Colours are the page's (custom properties), so that it is readable in light and in dark; text is text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from collage_evo.report.front import fastest_singles, told_budget, told_error, told_point
from collage_evo.report.result import Accuracy, FrontPoint

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 745, 18, 372
"""Where the axes are."""
LETTER, LINE = 6.3, 13
"""Size of a letter and of a line of labels, about."""

Place = tuple[float, float, str]
"""Of a label: offset from its point, and which of its ends is there."""


BAND = 70
"""Width of the band for float32, whose errors are rounding and would take most of the axis."""


@dataclass(frozen=True)
class Axes:
    """Both axes are logarithmic. What computes in float32 stands in a band of its own, left of the axis of errors.

    Errors of zero or less, as a metric may have, are drawn where the axis of errors begins.
    """

    errors: tuple[float, float]
    latencies: tuple[float, float]

    @classmethod
    def around(cls, points: Sequence[FrontPoint], budget: float | None) -> Axes:
        """With room for all of ``points``, of which there is at least one, and for the budget."""
        known = (*(point.error for point in points if not point.exact), budget)
        errors = [error for error in known if error is not None and error > 0.0]
        times = [point.latency_ms for point in points]
        least, most = min(errors, default=1e-3), max(errors, default=1e-3)
        return cls((least / 1.6, most * 2.0), (min(times) / 1.15, max(times) * 1.15))

    def of_error(self, error: float) -> float:
        """Where on the axis of errors, in pixels."""
        low, high = map(math.log, self.errors)
        start = LEFT + BAND
        return start + (RIGHT - start) * (math.log(max(error, self.errors[0])) - low) / (high - low)

    def x(self, point: FrontPoint) -> float:
        return LEFT + BAND / 2 if point.exact else self.of_error(point.error or 0.0)

    def y(self, latency_ms: float) -> float:
        low, high = map(math.log, self.latencies)
        return BOTTOM - (BOTTOM - TOP) * (math.log(latency_ms) - low) / (high - low)


def front_svg(points: Sequence[FrontPoint], accuracy: Accuracy) -> str:
    """All of ``points`` that have an error: what is fastest at each error as a line, each backend alone, the answer.

    Empty where no point has an error.
    """
    drawn = [point for point in points if point.error is not None]
    if not drawn:
        return ""
    axes, budget = Axes.around(drawn, accuracy.largest), told_budget(accuracy.budget)
    parts = [*_frame(axes, drawn), *_budget_line(axes, accuracy.largest, budget), _front_line(axes, drawn)]
    parts += [_dot(axes, point) for point in sorted(drawn, key=_importance)]
    parts += _labels(axes, drawn)
    return (
        f'<svg class="front" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="front-title front-told">'
        f'<title id="front-title">Latency against error, {escape(budget)}</title>'
        f'<desc id="front-told">{escape(_told(drawn))}</desc>{"".join(parts)}</svg>'
    )


def _told(points: Sequence[FrontPoint]) -> str:
    """The picture in words."""
    front = [f"{point.latency_ms:.2f} ms at {told_error(point.error)}" for point in points if point.pareto]
    answer = [f" The answer: {p.latency_ms:.2f} ms at {told_error(p.error)}." for p in points if p.answer]
    return f"{len(points)} measured. Fastest at each error: {', '.join(front)}.{''.join(answer)}"


def _importance(point: FrontPoint) -> tuple[bool, bool, bool]:
    """What is drawn later is on top."""
    return (point.answer, bool(point.single), point.pareto)


def _frame(axes: Axes, points: Iterable[FrontPoint]) -> Iterator[str]:
    yield _text(LEFT + BAND / 2, BOTTOM + 18, "float32", "middle")
    exact = max((point.error or 0.0 for point in points if point.exact), default=None)
    if exact is not None:
        yield _text(LEFT + BAND / 2, BOTTOM + 31, f"to {told_error(exact)}", "middle")
    yield f'<line class="leader" x1="{LEFT + BAND}" x2="{LEFT + BAND}" y1="{TOP}" y2="{BOTTOM}"/>'
    for error in _ticks(*axes.errors):
        x = axes.of_error(error)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>'
        yield _text(x, BOTTOM + 18, f"{error:g}".replace("e-0", "e-"), "middle")
    for ms in _ticks(*axes.latencies):
        y = axes.y(ms)
        yield f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 7, y + 4, f"{ms:g}", "end")
    yield f'<path class="axis" d="M{LEFT},{TOP} V{BOTTOM} H{RIGHT}"/>'
    yield _text((LEFT + BAND + RIGHT) / 2, BOTTOM + 40, "error", "middle")
    turned = f'transform="rotate(-90 14 {(TOP + BOTTOM) / 2})"'
    yield _text(14, (TOP + BOTTOM) / 2, "latency (ms)", "middle", turned)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers: powers of ten over a very wide range, 1, 2, 5, 10 ... over a wide one, else equal steps."""
    if high / low > 6.0:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        digits = (1, 2, 5) if high / low < 1e4 else (1,)
        found = [float(f"{digit}e{power}") for power in powers for digit in digits]
    else:
        rough = (high - low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
        found = [float(f"{count * step:.6g}") for count in range(1, math.floor(high / step) + 1)]
    return [tick for tick in found if low <= tick <= high]


def _budget_line(axes: Axes, largest: float | None, told: str) -> Iterator[str]:
    if largest is None:
        return
    x = axes.of_error(largest)
    yield f'<line class="budget" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{BOTTOM}"/>'
    yield _text(x - 5, TOP + 10, told, "end")


def _front_line(axes: Axes, points: Sequence[FrontPoint]) -> str:
    """At each error the least latency that was measured at no larger one."""
    path = ""
    for point in sorted((point for point in points if point.pareto), key=axes.x):
        x, y = axes.x(point), axes.y(point.latency_ms)
        path += f" H{x:.1f} V{y:.1f}" if path else f"M{x:.1f},{y:.1f}"
    return f'<path class="step" d="{path} H{RIGHT}"/>'


def _dot(axes: Axes, point: FrontPoint) -> str:
    kind = "answer" if point.answer else "single" if point.single else "pareto" if point.pareto else "placement"
    radius = {"answer": 7, "single": 4.5, "pareto": 3.5, "placement": 2.2}[kind]
    told = f"{point.latency_ms:.2f} ms, error {told_error(point.error)}: {told_point(point)}"
    x, y = axes.x(point), axes.y(point.latency_ms)
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(told)}</title></circle>'


def _labels(axes: Axes, points: Sequence[FrontPoint]) -> Iterator[str]:
    """Names of the answer and of backends alone, where they cover neither each other nor a point that matters.

    A line leads to a point that its name is not beside.
    """
    taken = [
        (axes.x(p) - 5, axes.y(p.latency_ms) - 5, axes.x(p) + 5, axes.y(p.latency_ms) + 5)
        for p in points
        if p.answer or p.pareto or p.single
    ]
    for point in dict.fromkeys((*(p for p in points if p.answer), *fastest_singles(points))):
        name = f"answer: {point.single}" if point.answer and point.single else point.single or "answer"
        at = axes.x(point), axes.y(point.latency_ms)
        place = next(filter(_free(taken, at, name), _places()), (9.0, 4.0, "start"))
        taken.append(_box(at, place, name))
        x, y = at[0] + place[0], at[1] + place[1]
        if abs(place[1]) > 2 * LINE:
            yield f'<line class="leader" x1="{at[0]:.1f}" y1="{at[1]:.1f}" x2="{x:.1f}" y2="{y - 4:.1f}"/>'
        yield _text(x, y, name, place[2], 'class="bold"' if point.answer else "")


def _places() -> Iterator[Place]:
    """Beside a point, above and below it, then further and further up and down."""
    yield from ((9, 4, "start"), (-9, 4, "end"), (0, -9, "middle"), (0, 17, "middle"))
    for lines in range(1, 16):
        for offset in (-lines * LINE + 4, lines * LINE + 4):
            yield from ((14, offset, "start"), (-14, offset, "end"))


def _box(at: tuple[float, float], place: Place, name: str) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a label."""
    wide = LETTER * len(name)
    left = at[0] + place[0] - {"start": 0.0, "middle": wide / 2, "end": wide}[place[2]]
    base = at[1] + place[1]
    return (left, base - LINE + 3, left + wide, base + 3)


def _free(
    taken: Sequence[tuple[float, float, float, float]], at: tuple[float, float], name: str
) -> Callable[[Place], bool]:
    """Whether a label of ``name`` at a place is inside of the axes, and covers none of ``taken``."""

    def free(place: Place) -> bool:
        left, top, right, bottom = _box(at, place, name)
        inside = left >= LEFT and right <= RIGHT and top >= TOP and bottom <= BOTTOM
        return inside and all(
            right <= other[0] or left >= other[2] or bottom <= other[1] or top >= other[3] for other in taken
        )

    return free


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
