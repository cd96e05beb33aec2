"""Result tables for a terminal of 80 columns, with every name in one piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collage_evo.backends.registry import Entry
from collage_evo.codec import to_plain
from collage_evo.errors import printable
from collage_evo.report.console import new_table
from collage_evo.report.front import describe_accuracy, front_table, has_front
from collage_evo.report.result import Finished, Latency, RegionResult, Result, ServingResult, Speeds
from collage_evo.report.summary import describe_answer, describe_loss, describe_model, gains, summary
from collage_evo.report.words import (
    STARTS,
    capitalised,
    format_ms,
    format_number,
    format_ratio,
    format_shapes,
    in_words,
)
from collage_evo.runtime.artifact import Artifact
from collage_evo.runtime.bench import BenchReport
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import NodeArg
from collage_evo.target.target import CPU
from collage_evo.testing.finding import CHECKS, Finding, Report, Status

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
    for latency in (*result.baselines, *(seed.latency for seed in result.seeds)):
        if latency.reason:
            console.print(f"{_named(latency.name)}: {latency.reason}", highlight=False)
    if has_front(result):
        console.print(front_table(result))
    console.print(placement_table(result.placement))
    console.print(serving_table(result.serving))
    lines = [f"{describe_model(result)}", describe_answer(result), *gains(result), describe_loss(result.accuracy)]
    console.print(f"{'; '.join(lines)}.", highlight=False)
    if result.speeds is not None:
        console.print(describe_speeds(result.speeds, result.target["threads"]), highlight=False)
    if has_front(result):
        console.print(describe_accuracy(result.accuracy), highlight=False)
    console.print(describe_check(result), highlight=False)


def latency_table(result: Result) -> Table:
    """One row for every baseline, seed and the answer."""
    title = f"{result.model['name']}, {result.target['device']}, {result.target['threads']} thread(s)"
    if result.objective == "throughput" and result.speeds is not None:
        title += f", {result.speeds.sessions} session(s) at once: the machine's time for a run"
    table = new_table(title, "what...", "median ms", "p10 .. p90", "runs", "predicted")
    for latency in result.baselines:
        remark = ", best single backend" if latency.name == result.best_single else ""
        table.add_row(_named(latency.name) + remark, *_cells(latency))
    table.add_section()
    for seed in result.seeds:
        table.add_row(in_words(seed.kind), *_cells(seed.latency), format_ms(seed.predicted_ms))
    table.add_section()
    placed = result.answer == "placement"
    remark = f"{len(result.placement)} region(s)" if placed else f"{result.best_single} alone"
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
    inputs = f"{count:.0f} input{'' if count == 1 else 's'}" if count is not None else "inputs"
    if largest is None:
        return "The outputs of this model cannot be compared with those of another run of it."
    return (
        f"Last check of the finished model, on {inputs}, beside ONNX Runtime without optimisations: largest "
        f"difference of any output {format_number(largest)} (2-norm of the difference over that of the output)."
    )


def describe_speeds(speeds: Speeds, threads: int) -> str:
    """Latency of the answer in a single session and on the full machine, in one line."""
    latency_text = "not known" if speeds.latency_ms is None else f"{format_ms(speeds.latency_ms)} ms a run"
    full = "not known"
    if speeds.machine_ms is not None and speeds.runs_per_second is not None:
        full = f"{format_ratio(speeds.runs_per_second)} runs a second, {format_ms(speeds.machine_ms)} ms for each"
    sessions = f"{speeds.sessions} session{'' if speeds.sessions == 1 else 's'}"
    why = f" ({speeds.reason})" if speeds.reason else ""
    of = f"{threads} thread{'' if threads == 1 else 's'}"
    return f"With the machine for itself: {latency_text}. With all cores at work, {sessions} of {of}: {full}{why}."


def _cells(latency: Latency) -> tuple[str, str, str]:
    """Median, spread and number of runs."""
    if latency.median_ms is None:
        return ("-", "", "")
    about, ends = "~" if latency.scaled else "", (latency.p10_ms, latency.p90_ms)
    return (about + format_ms(latency.median_ms), " .. ".join(map(format_ms, ends)), str(latency.n))


def _named(name: str) -> str:
    """A library by its name in a configuration; a seed in words."""
    return in_words(name) if ":" in name or name in STARTS else name


def print_artifact(found: Artifact) -> None:
    """The target, the model's inputs and outputs, each profile's regions, the fallback."""
    _line(f"target {found.target.device}, {found.target.threads} thread(s)")
    for kind, args in (("input", found.signature.inputs), ("output", found.signature.outputs)):
        for arg in args:
            _line(f"{kind} {arg.name}: {_declared(arg)}")
    open_shapes = len(found.profiles) > 1 or found.fallback is not None
    for index, profile in enumerate(found.profiles):
        if open_shapes:
            shapes = zip(profile.program.inputs, profile.program.shapes, strict=True)
            _line(f"profile {index}: {format_shapes(dict(shapes))}")
        _print_regions(profile.program)
    if found.fallback is not None:
        _line("any other shapes:")
        _print_regions(found.fallback)


def print_bench(report: BenchReport, profile: bool) -> None:
    """Shapes, latency, and with ``profile`` each region's and each border's share."""
    for kind, tensors in (("input", report.inputs), ("output", report.outputs)):
        for name, (dtype, shape) in tensors.items():
            _line(f"{kind} {name}: {dtype}{list(shape)}")
    where = " in the fallback" if report.fallback else ""
    _line(
        f"median {report.median_ms:.3f} ms{where} (95 % interval {report.low_ms:.3f} .. {report.high_ms:.3f}, "
        f"p10 {report.p10_ms:.3f}, p90 {report.p90_ms:.3f}, {report.n} runs)"
    )
    if report.device_ms is not None:
        _line(f"by the device's events {report.device_ms:.3f} ms, without copies of inputs and outputs")
    if not profile:
        return
    for index, (engine, spent) in enumerate(report.regions):
        _line(f"region {index} {engine}: {spent:.3f} ms")
    for hop in report.transitions:
        cost = "not known" if hop.ms is None else f"about {hop.ms:.3f} ms inside the two regions"
        size = "" if hop.nbytes is None else f", {hop.nbytes} bytes"
        copied = {None: ", and a copy", 0.0: ""}.get(hop.copy_ms, f", and {hop.copy_ms:.3f} ms for a copy")
        _line(f"transition {hop.source} -> {hop.target}, {hop.tensor}{size}: {cost}{copied}")
    _line(f"outside the regions: {report.outside_ms:.3f} ms")


def _line(line: str) -> None:
    print(printable(line))


def _print_regions(program: Program) -> None:
    for index, piece in enumerate(program.pieces):
        ends = piece.nodes[0] if len(piece.nodes) == 1 else f"{piece.nodes[0]} .. {piece.nodes[-1]}"
        engine = f"{piece.backend} {piece.backend_version} ({piece.variant})"
        _line(f"region {index}: {engine}, {len(piece.nodes)} node(s): {ends}")


def _declared(arg: NodeArg) -> str:
    return f"{arg.type}[{', '.join('?' if size is None else str(size) for size in arg.shape)}]"


MOST = 8
"""Variants of a backend on one device that are shown by name."""


def print_backends(entries: Sequence[Entry], console: Console) -> None:
    """A row for each backend and device; below, why others cannot be used, unshortened, so that it can be copied."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown = [name for entry in entries for device in entry.devices for name in _shown(_able(entry, device))]
    words = {"variants": [f"{variant}," for variant in shown]}
    for column in ("backend", "usable", "version", "device", "variants"):
        whole = max(map(len, words.get(column, ())), default=None)
        table.add_column(column, no_wrap=column in ("backend", "usable"), overflow="fold", min_width=whole)
    for entry in entries:
        usable = "yes" if entry.available else "no"
        offers = [(device, ", ".join(_shown(_able(entry, device)))) for device in entry.devices] or [("", "")]
        for place, offer in enumerate(offers):
            first_cells = (entry.name, usable, entry.version) if place == 0 else ("", "", "")
            table.add_row(*first_cells, *offer)
    console.print(table)
    for entry in entries:
        if not entry.available:
            console.print(f"{entry.name}: {entry.reason}", soft_wrap=True)
        reasons: dict[tuple[str, str], list[str]] = {}
        for variant, reason in entry.declined.items():
            reasons.setdefault((entry.device_of[variant], reason), []).append(variant)
        for (device, reason), variants in reasons.items():
            what = f"{entry.name}: not on {device} as {', '.join(variants)}: {reason}"
            console.print(what, soft_wrap=True)


def _shown(variants: Sequence[str]) -> list[str]:
    """The first of many, and the number of the others; ``--json`` has all."""
    few = MOST if len(variants) > MOST + 1 else len(variants)
    return [*variants[:few], *([f"and {len(variants) - few} more"] if len(variants) > few else [])]


def _able(entry: Entry, device: str) -> list[str]:
    """The variants that run on ``device``, without those that are declined here."""
    return [name for name, its in entry.device_of.items() if its == device and name not in entry.declined]


_STATUSES: tuple[Status, ...] = ("passed", "declined", "failed")
_REASONS = 12
"""Number of reasons for declining, and of places where NaN or infinity gets lost, that are printed, most frequent
first."""


def print_conformance(report: Report, console: Console) -> None:
    """A row for each check, then the number of pieces of each pattern, reasons for declining, and each failure."""
    table = new_table(f"{report.backend} {report.version}", "-check", "run", *_STATUSES, "what...")
    for check, what in CHECKS.items():
        counts = [report.count(check, status) for status in _STATUSES]
        table.add_row(check, str(sum(counts)), *map(str, counts), what)
    console.print(table)
    met = ", ".join(f"{pattern} {count}" for pattern, count in report.patterns.items())
    console.print(f"pieces run by pattern: {met}")
    declined = [finding for finding in report.findings if finding.status == "declined"]
    _print_reasons("declined", [finding for finding in declined if finding.check != "nonfinite"], console)
    _print_reasons("lost", [finding for finding in declined if finding.check == "nonfinite"], console)
    for finding in report.failures:
        console.print(f"FAILED {finding.check}: {finding.case}: {finding.reason}")


def _print_reasons(heading: str, findings: Sequence[Finding], console: Console) -> None:
    reasons = Counter(finding.reason for finding in findings)
    for reason, count in reasons.most_common(_REASONS):
        console.print(f"{heading} {count}: {reason}")
    if len(reasons) > _REASONS:
        console.print(f"and {len(reasons) - _REASONS} more: see --json")


def conformance_json(report: Report) -> dict[str, Any]:
    """The counts of each check, and every finding."""
    counts = {check: {status: report.count(check, status) for status in _STATUSES} for check in CHECKS}
    return {"checks": counts, **to_plain(report)}
