"""The result as one self-contained HTML page: tables, latency against error, and the convergence curve."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment

from collage_evo.files import write_whole
from collage_evo.report.front import front_rows, has_front, told_accuracy
from collage_evo.report.picture import front_svg
from collage_evo.report.result import Result
from collage_evo.report.terminal import told_speeds, verdict


def write_html(path: Path, result: Result) -> None:
    """Write ``report.html``."""
    source = resources.files("collage_evo.report").joinpath("report.html.j2").read_text()
    template = Environment(autoescape=True).from_string(source)
    curve = convergence_svg(result.search.convergence, _best_single_ms(result)) if result.search else ""
    picture = front_svg(result.front, result.accuracy) if has_front(result) else ""
    front, lost = front_rows(result.front), told_accuracy(result.accuracy)
    speeds = told_speeds(result.speeds, result.target["threads"]) if result.speeds is not None else ""
    page = template.render(
        result=result, verdict=verdict(result), speeds=speeds, curve=curve, picture=picture, front=front,
        accuracy=lost,
    )  # fmt: skip
    write_whole(path, page)


def convergence_svg(points: Sequence[Mapping[str, float]], best_single_ms: float | None) -> str:
    """Best measured latency (ms) over search time (s), as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.step(
        [p["seconds"] for p in points], [p["best_ms"] for p in points], where="post", marker=".", label="best found"
    )
    if best_single_ms is not None:
        axes.axhline(best_single_ms, color="grey", linestyle="--", label="best single backend")
    axes.set_xlabel("search time (s)")
    axes.set_ylabel("latency (ms)")
    axes.legend()
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def _best_single_ms(result: Result) -> float | None:
    return next((b.median_ms for b in result.baselines if b.name == result.best_single), None)
