"""The result as tables that fit a terminal of 80 columns, every name in one piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collage_evo.report.front import front_table, has_front, told_accuracy, told_budget
from collage_evo.report.result import Latency, RegionResult, Result, ServingResult, Speeds
from collage_evo.target.target import CPU


def print_result(result: Result, console: Console) -> None:
    """Baselines, seeds and the answer; why some have no time; the front; where the regions went; the verdict."""
    console.print(latency_table(result))
    for latency in (*result.baselines, *(seed.latency for seed in result.seeds)):
        if latency.reason:
            console.print(f"{latency.name}: {latency.reason}", highlight=False)
    if has_front(result):
        console.print(front_table(result))
    console.print(placement_table(result.placement))
    console.print(serving_table(result.serving))
    console.print(verdict(result), highlight=False)
    if result.speeds is not None:
        console.print(told_speeds(result.speeds, result.target["threads"]), highlight=False)
    if has_front(result):
        console.print(told_accuracy(result.accuracy), highlight=False)


def latency_table(result: Result) -> Table:
    """One row for every baseline, seed and the answer."""
    title = f"{result.model['name']}, {result.target['device']}, {result.target['threads']} thread(s)"
    if result.objective == "throughput" and result.speeds is not None:
        title += f", {result.speeds.sessions} session(s) at once: the machine's time for a run"
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("what", overflow="fold")
    for column in ("median ms", "p10 .. p90", "runs", "predicted"):
        table.add_column(column, justify="right", no_wrap=True)
    for latency in result.baselines:
        remark = ", best single backend" if latency.name == result.best_single else ""
        table.add_row(_spaced(latency.name) + remark, *_cells(latency))
    table.add_section()
    for seed in result.seeds:
        table.add_row(f"seed: {_spaced(seed.kind)}", *_cells(seed.latency), f"{seed.predicted_ms:.2f}")
    table.add_section()
    placed = result.answer == "placement"
    remark = f"{len(result.placement)} region(s)" if placed else f"{result.best_single} alone"
    table.add_row(f"{result.best.name}, {remark}", *_cells(result.best), style="bold")
    return table


def placement_table(regions: Sequence[RegionResult]) -> Table:
    """Where the regions went, with each one's time."""
    table = Table(title="placement", box=SIMPLE_HEAD)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("backend", no_wrap=True)
    devices = any(region.device != CPU for region in regions)
    if devices:
        table.add_column("on", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    written_in = {"int8": [region.int8 for region in regions], "bfloat16": [region.bfloat16 for region in regions]}
    written_in = {name: nodes for name, nodes in written_in.items() if any(nodes)}
    for name in written_in:
        table.add_column(f"in {name}", justify="right", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    written = any(region.rewrites for region in regions)
    if written:
        table.add_column("rewritten", overflow="fold")
    table.add_column("from .. to", overflow="fold")
    for index, region in enumerate(regions):
        spent = "" if region.measured_ms is None else f"{region.measured_ms:.2f}"
        ends = region.nodes[0] if len(region.nodes) == 1 else f"{region.nodes[0]} .. {region.nodes[-1]}"
        where = [region.device] if devices else []
        counts = (str(len(region.nodes)), *(str(len(nodes[index])) for nodes in written_in.values()))
        rewrites = [_rewrites(region)] if written else []
        table.add_row(str(index), region.engine, *where, *counts, spent, *rewrites, ends)
    return table


def _rewrites(region: RegionResult) -> str:
    """Names of a region's rewrites, and how often each is in it where that is more than once."""
    counts = Counter(one.rewrite for one in region.rewrites)
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())


def serving_table(rows: Iterable[ServingResult]) -> Table:
    """What serving takes: the answer beside each backend alone."""
    table = Table(title="serving", box=SIMPLE_HEAD)
    table.add_column("what", overflow="fold")
    for column in ("peak memory MB", "on disk MB", "load s"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}"
        load = "-" if row.load_ms is None else f"{row.load_ms / 1e3:.2f}"
        style = "bold" if row.name == "best" else None
        table.add_row(_spaced(row.name), peak, f"{row.disk_bytes / 1e6:.1f}", load, style=style)
    return table


def verdict(result: Result) -> str:
    """The answer in one line."""
    speed, error = result.speedup_over_best_single, result.numerics["max_relative_error"]
    if result.not_searched:
        head = f"The answer is {result.best_single} alone: {result.not_searched}."
    elif result.candidate_speedup.by_definition:
        budget = told_budget(result.accuracy.budget)
        head = f"No placement that was measured keeps to {budget}, so the answer is {result.best_single} alone."
    elif speed.by_definition:
        tried = result.candidate_speedup
        head = (
            f"No placement beat every backend alone for certain, so the answer is {result.best_single} alone; "
            f"the best one tried reached {tried.estimate:.3f}x [{tried.low:.3f}, {tried.high:.3f}]."
        )
    else:
        faster = "the throughput of" if result.objective == "throughput" else "as fast as"
        head = (
            f"{speed.estimate:.3f}x {faster} {result.best_single}, the best single backend "
            f"(98 % interval {speed.low:.3f} to {speed.high:.3f}, {len(speed.rounds)} paired rounds over "
            f"{speed.seconds:.0f} s)."
        )
    return f"{head} Largest relative error {error:.1e}." if error is not None else f"{head} Outputs not comparable."


def told_speeds(speeds: Speeds, threads: int) -> str:
    """How fast the answer is alone and on the full machine, in one line."""
    alone = "not known" if speeds.latency_ms is None else f"{speeds.latency_ms:.2f} ms a run"
    full = "not known"
    if speeds.machine_ms is not None and speeds.runs_per_second is not None:
        full = f"{speeds.runs_per_second:.1f} runs a second, {speeds.machine_ms:.2f} ms for each"
    sessions = f"{speeds.sessions} session{'' if speeds.sessions == 1 else 's'} of {threads} thread(s)"
    why = f" ({speeds.reason})" if speeds.reason else ""
    return f"The answer alone: {alone}; the machine full of it, {sessions}: {full}.{why}"


def _cells(latency: Latency) -> tuple[str, str, str]:
    """Median, spread and number of runs."""
    if latency.median_ms is None:
        return ("-", "", "")
    return (f"{latency.median_ms:.2f}", f"{latency.p10_ms:.2f} .. {latency.p90_ms:.2f}", str(latency.n))


def _spaced(name: str) -> str:
    """With room for line breaks between the parts of a name such as ``greedy:openvino,ncnn``."""
    return name.replace(":", ": ").replace(",", ", ")
