"""Result tables for a terminal of 80 columns, with every name in one piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from collage_evo.hardware.target import CPU
from collage_evo.report.accuracy import describe_accuracy, describe_loss, format_budget
from collage_evo.report.console import new_table
from collage_evo.report.finished import Finished
from collage_evo.report.front import front_rows, has_front
from collage_evo.report.result import Latency, RegionResult, Result, SeedResult, ServingResult, Speeds
from collage_evo.report.sizes import sizes_table
from collage_evo.report.summary import describe_answer, describe_model, gains, rank_of_best, summary
from collage_evo.report.words import (
    capitalised,
    format_count,
    format_ms,
    format_number,
    format_ratio,
    format_shapes,
    in_words,
)
from collage_evo.search.evolution.origin import origin_in

SCALED = (
    "Times are of the final comparison. ~: timed before it, as the ratio to what ran both times, in ms of the "
    "comparison."
)


def print_summary(finished: Sequence[Finished], directory: Path, console: Console) -> None:
    """Print the end of a run; it breaks no line, so that commands and paths can be copied."""
    for line in summary(finished, directory):
        console.print(line, highlight=False, soft_wrap=True)


def print_profiles(finished: Sequence[Finished], console: Console) -> None:
    """The tables of each profile, under its shapes if there are several."""
    for one in finished:
        if len(finished) > 1:
            console.print(f"profile: {format_shapes(one.shapes)}", highlight=False)
        print_result(one.result, console)


def print_result(result: Result, console: Console) -> None:
    """Print each single library and seed, why some have no time, the front, the regions, the answer."""
    console.print(latency_table(result))
    if any(one.scaled for one in (*result.baselines, *(seed.latency for seed in result.seeds))):
        console.print(SCALED, highlight=False)
    if result.changed:
        console.print(f"{capitalised(result.changed)}.", highlight=False)
    baselines = [(_named(one.name), one) for one in result.baselines]
    for name, latency in (*baselines, *((name, seed.latency) for name, seed in _seeds(result))):
        if latency.reason:
            console.print(f"{name}: {latency.reason}", highlight=False)
    if has_front(result):
        console.print(front_table(result))
    if result.by_size:
        console.print(sizes_table(result.by_size))
    console.print(placement_table(result.placement))
    console.print(serving_table(result.serving))
    lines = [f"{describe_model(result)}", describe_answer(result), *gains(result), describe_loss(result.accuracy)]
    console.print(f"{'; '.join(lines)}.", highlight=False)
    if result.speeds is not None:
        console.print(describe_speeds(result.speeds, result.target["threads"]), highlight=False)
    if has_front(result):
        console.print(describe_accuracy(result.accuracy), highlight=False)
    console.print(describe_check(result), highlight=False)


def front_table(result: Result) -> Table:
    """The fastest at each error, the answer, and each single backend."""
    budget = format_budget(result.accuracy.budget)
    times = "machine's time for a run" if result.objective == "throughput" else "latency"
    table = new_table(f"{times} against error, {budget}", "median ms", "error", "-timed", "what...")
    for *cells, what, answer in front_rows(result.front):
        table.add_row(*cells, what, style="bold" if answer else None)
    return table


def latency_table(result: Result) -> Table:
    """One row for every baseline, seed and the answer."""
    title = f"{result.model['name']}, {result.target['device']}, {result.target['threads']} thread(s)"
    if result.objective == "throughput" and result.speeds is not None:
        title += f", {result.speeds.sessions} session(s) at once: the machine's time for a run"
    table = new_table(title, "what...", "median ms", "p10 .. p90", "runs", "predicted")
    for latency in result.baselines:
        remark = f", {rank_of_best(result).removeprefix('the ')}" if latency.name == result.best_single else ""
        table.add_row(_named(latency.name) + remark, *_cells(latency))
    table.add_section()
    for name, seed in _seeds(result):
        table.add_row(name, *_cells(seed.latency), format_ms(seed.predicted_ms))
    table.add_section()
    remark = f"{len(result.placement)} region(s)" if result.placed else f"baseline {result.best_single}"
    table.add_row(f"{result.best.name}, {remark}", *_cells(result.best), style="bold")
    return table


def placement_table(regions: Sequence[RegionResult]) -> Table:
    """Regions by engine, with each one's time."""
    shown = {
        "#": True,
        "-backend": True,
        "-on": any(region.device != CPU for region in regions),
        "nodes": True,
        "in int8": any(region.int8 for region in regions),
        "ms": True,
        "rewritten...": any(region.rewrites for region in regions),
        "from .. to...": True,
    }
    table = new_table("placement", *(column for column, wanted in shown.items() if wanted))
    for index, region in enumerate(regions):
        spent = "" if region.measured_ms is None else format_ms(region.measured_ms)
        ends = region.nodes[0] if len(region.nodes) == 1 else f"{region.nodes[0]} .. {region.nodes[-1]}"
        counts = (str(len(region.nodes)), str(len(region.int8)))
        cells = (str(index), region.engine, region.device, *counts, spent, _rewrites(region), ends)
        table.add_row(*(cell for cell, wanted in zip(cells, shown.values(), strict=True) if wanted))
    return table


def _rewrites(region: RegionResult) -> str:
    """Names of a region's rewrites, and their number if that is more than one."""
    counts = Counter(one.rewrite for one in region.rewrites)
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())


def serving_table(rows: Iterable[ServingResult]) -> Table:
    """Cost of serving: the answer and each single backend."""
    table = new_table("serving", "what...", "peak memory MB", "on disk MB", "seconds to load")
    for row in rows:
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}"
        load = "-" if row.load_ms is None else f"{row.load_ms / 1e3:.2f}"
        style = "bold" if row.name == "best" else None
        table.add_row(_named(row.name), peak, f"{row.disk_bytes / 1e6:.1f}", load, style=style)
    return table


def describe_check(result: Result) -> str:
    """Result of the last check of the finished model; this number is not the error that the budget bounds."""
    largest, count = result.numerics.get("max_relative_error"), result.numerics.get("inputs")
    inputs = "inputs" if count is None else format_count(round(count), "input")
    if largest is None:
        return "The outputs of this model cannot be compared with those of another run of it."
    return (
        f"Last check of the artifact, on {inputs}, beside ONNX Runtime without optimisations: largest "
        f"difference of any output {format_number(largest)} (2-norm of the difference over that of the output)."
    )


def describe_speeds(speeds: Speeds, threads: int) -> str:
    """Latency of the answer in a single session and on the full machine, in one line."""
    latency_text = "not known" if speeds.latency_ms is None else f"{format_ms(speeds.latency_ms)} ms a run"
    full = (
        f"{format_ratio(speeds.runs_per_second)} runs a second, {format_ms(speeds.machine_ms)} ms for each"
        if speeds.machine_ms is not None and speeds.runs_per_second is not None
        else "not known"
    )
    why = f" ({speeds.reason})" if speeds.reason else ""
    all_cores = f"{format_count(speeds.sessions, 'session')} of {format_count(threads, 'thread')}"
    return f"With the machine for itself: {latency_text}. With all cores at work, {all_cores}: {full}{why}."


def _cells(latency: Latency) -> tuple[str, str, str]:
    """Median, spread and number of runs."""
    if latency.median_ms is None:
        return ("-", "", "")
    about, ends = "~" if latency.scaled else "", (latency.p10_ms, latency.p90_ms)
    return (about + format_ms(latency.median_ms), " .. ".join(map(format_ms, ends)), str(latency.n))


def _seeds(result: Result) -> list[tuple[str, SeedResult]]:
    """Each seed by its origin in words, and what it is if several have this origin."""
    alike = Counter(seed.kind for seed in result.seeds)
    return [(in_words(seed.kind, seed.what if alike[seed.kind] > 1 else ""), seed) for seed in result.seeds]


def _named(name: str) -> str:
    """A library by its name in a configuration; a seed in words."""
    origin = origin_in(name)
    return in_words(origin) if origin else name
