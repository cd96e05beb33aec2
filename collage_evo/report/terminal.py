"""The result as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from collage_evo.report.result import Latency, RegionResult, Result


def print_result(result: Result, console: Console) -> None:
    """Baselines, seeds and the answer; then where the regions went; then the verdict in one line."""
    console.print(latency_table(result))
    console.print(placement_table(result.placement))
    console.print(verdict(result), highlight=False)


def latency_table(result: Result) -> Table:
    """One row for every baseline, seed and the answer."""
    table = Table(title=f"{result.model['name']}, {result.target['device']}, {result.target['threads']} thread(s)")
    table.add_column("what")
    table.add_column("median ms", justify="right")
    table.add_column("p10 .. p90", justify="right")
    table.add_column("runs", justify="right")
    table.add_column("predicted", justify="right")
    table.add_column("remark", overflow="fold")
    for latency in result.baselines:
        remark = "best single backend" if latency.name == result.best_single else latency.reason
        table.add_row(*_cells(latency), "", remark)
    table.add_section()
    for seed in result.seeds:
        predicted = f"{seed.predicted_ms:.2f}"
        table.add_row(f"seed: {seed.kind}", *_cells(seed.latency)[1:], predicted, seed.latency.reason)
    table.add_section()
    remark = f"{len(result.placement)} region(s)" if result.answer == "placement" else "the best single backend"
    table.add_row(*_cells(result.best), "", remark, style="bold")
    return table


def placement_table(regions: Iterable[RegionResult]) -> Table:
    """Where the regions went, with each one's time."""
    table = Table(title="placement")
    table.add_column("#", justify="right")
    table.add_column("backend")
    table.add_column("nodes", justify="right")
    table.add_column("ms", justify="right")
    table.add_column("from .. to", overflow="ellipsis", no_wrap=True)
    for index, region in enumerate(regions):
        spent = "" if region.measured_ms is None else f"{region.measured_ms:.2f}"
        engine = region.backend if region.variant == "default" else f"{region.backend}/{region.variant}"
        ends = region.nodes[0] if len(region.nodes) == 1 else f"{region.nodes[0]} .. {region.nodes[-1]}"
        table.add_row(str(index), engine, str(len(region.nodes)), spent, ends)
    return table


def verdict(result: Result) -> str:
    """The answer in one line."""
    speed, error = result.speedup_over_best_single, result.numerics["max_relative_error"]
    if result.not_searched:
        head = f"The answer is {result.best_single} alone: {result.not_searched}."
    elif speed.by_definition:
        tried = result.candidate_speedup
        head = (
            f"Nothing beat {result.best_single} alone, so the answer is {result.best_single} alone; "
            f"the best placement tried reached {tried.median:.3f}x [{tried.low:.3f}, {tried.high:.3f}]."
        )
    else:
        head = (
            f"{speed.median:.3f}x as fast as {result.best_single}, the best single backend "
            f"(95 % interval {speed.low:.3f} to {speed.high:.3f}, {len(speed.rounds)} paired rounds)."
        )
    return f"{head} Largest relative error {error:.1e}." if error is not None else f"{head} Outputs not comparable."


def _cells(latency: Latency) -> tuple[str, str, str, str]:
    if latency.median_ms is None:
        return (latency.name, "-", "", "")
    spread = f"{latency.p10_ms:.2f} .. {latency.p90_ms:.2f}"
    return (latency.name, f"{latency.median_ms:.2f}", spread, str(latency.n))
