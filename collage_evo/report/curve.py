"""Curve of the best time over the time of the search, as SVG in the page's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage_evo.report.svg import format_tick, text, ticks

WIDTH, HEIGHT = 380, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 372, 12, 150


def curve_svg(points: Sequence[Mapping[str, float]], best_single_ms: float | None) -> str:
    """Steps downwards (ms over s), dashed the best library's time in the search; empty for less than two points."""
    if len(points) < 2:
        return ""
    times = [point["best_ms"] for point in points] + ([best_single_ms] if best_single_ms is not None else [])
    low, high = min(times) * 0.95, max(times) * 1.05
    end = max(point["seconds"] for point in points) or 1.0

    def x(seconds: float) -> float:
        return LEFT + (RIGHT - LEFT) * seconds / end

    def y(ms: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (ms - low) / (high - low)

    parts = []
    for ms in ticks(low, high, 4):
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y(ms):.1f}" y2="{y(ms):.1f}"/>')
        parts.append(text(LEFT - 6, y(ms) + 4, format_tick(ms), "end"))
    parts += [text(x(s), BOTTOM + 16, format_tick(s), "middle") for s in ticks(0.0, end, 4)]
    path = f"M{x(points[0]['seconds']):.1f},{y(points[0]['best_ms']):.1f}"
    path += "".join(f" H{x(point['seconds']):.1f} V{y(point['best_ms']):.1f}" for point in points[1:])
    parts.append(f'<path class="step" d="{path} H{RIGHT}"/>')
    if best_single_ms is not None:
        at = y(best_single_ms)
        parts.append(f'<line class="budget" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    parts.append(f'<path class="axis" d="M{LEFT},{TOP} V{BOTTOM} H{RIGHT}"/>')
    parts.append(text((LEFT + RIGHT) / 2, HEIGHT - 4, "seconds of search", "middle"))
    dashed = "; dashed: the best single library, timed in the search as well" if best_single_ms is not None else ""
    title = f"Best time so far, in ms, over the seconds of the search{dashed}"
    head = f'<svg class="front curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>'
    return f"{head}{''.join(parts)}</svg>"
