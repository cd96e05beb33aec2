"""Terminal output about backends, an artifact and its timing, and a backend's conformance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from collage_evo.backends.registry import Entry
from collage_evo.codec import to_plain
from collage_evo.errors import UnavailableError, printable
from collage_evo.fitness.jobs import recorded_regions
from collage_evo.multimap import multimap
from collage_evo.patterns.match import Region
from collage_evo.report.console import new_table
from collage_evo.report.words import arithmetic, format_shapes
from collage_evo.runtime.artifact import Artifact
from collage_evo.runtime.bench import BenchReport
from collage_evo.runtime.package import Package, Selected
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import needs_proof
from collage_evo.runtime.signature import NodeArg
from collage_evo.testing.finding import CHECKS, Finding, Report, Status

MOST = 8
"""Variants of a backend on one device that are shown by name."""
_STATUSES: tuple[Status, ...] = ("passed", "declined", "failed")
_REASONS = 12
"""Number of reasons for declining, and of places where NaN or infinity gets lost, that are printed, most frequent
first."""


def print_package(package: Package) -> None:
    """Each variant with its processor, and which of them this processor takes."""
    for one in package.variants:
        where = one.target.accelerator or one.target.machine.cpu
        speedup = f", {one.written.speedup:.2f} times as fast as the fall-back" if one.written.speedup else ""
        _line(f"{one.name}: {where}, {one.target.threads} thread(s){speedup}")
        for note in filter(None, (one.elsewhere, one.difference)):
            _line(f"    {note}")
    if package.fallback:
        _line(f"{package.fallback.name}: the fall-back in one library, for any other processor")
    try:
        selected = package.select()
        _line(f"load takes {selected.name} here: {selected.reason}")
    except UnavailableError as error:
        _line(f"load takes none here: {error}")


def print_artifact(artifact: Artifact, selected: Selected | None = None) -> None:
    """The target, the model's inputs and outputs, each profile's regions, the fallback."""
    if selected is not None and selected.name:
        _line(f"variant {selected.name}: {selected.reason}")
    elif artifact.measured_elsewhere:
        _line(artifact.measured_elsewhere)
    _line(f"target {artifact.target.device}, {artifact.target.threads} thread(s)")
    for kind, args in (("input", artifact.signature.inputs), ("output", artifact.signature.outputs)):
        for arg in args:
            _line(f"{kind} {arg.name}: {_declared(arg)}")
    open_shapes = len(artifact.profiles) > 1 or artifact.fallback is not None
    for index, profile in enumerate(artifact.profiles):
        if open_shapes:
            shapes = zip(profile.program.inputs, profile.program.shapes, strict=True)
            _line(f"profile {index}: {format_shapes(dict(shapes))}")
        _print_regions(profile.program, recorded_regions(profile.info, len(profile.program.pieces)))
    if artifact.fallback is not None:
        first = any(needs_proof(profile.program) for profile in artifact.profiles)
        _line("the first request of each shape, for its errors:" if first else "any other shapes:")
        _print_regions(artifact.fallback)


def print_bench(report: BenchReport) -> None:
    """Shapes, latency, and the time of each region."""
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
    for index, (engine, spent) in enumerate(report.regions):
        _line(f"region {index} {engine}: {spent:.3f} ms")
    _line(f"outside the regions: {report.outside_ms:.3f} ms")


def _line(line: str) -> None:
    print(printable(line))


def _print_regions(program: Program, regions: Sequence[Region] = ()) -> None:
    for index, (piece, region) in enumerate(zip_longest(program.pieces, regions)):
        ends = piece.nodes[0] if len(piece.nodes) == 1 else f"{piece.nodes[0]} .. {piece.nodes[-1]}"
        engine = f"{piece.backend} {piece.backend_version} ({piece.variant})"
        _line(f"region {index}: {engine}, {_precisions(piece, region)}, {len(piece.nodes)} node(s): {ends}")


def _precisions(piece: Piece, region: Region | None) -> str:
    """The variant's precision, and the number of operators in others: a region's edits write those into it."""
    written = region.numerics if region is not None else ()
    lower = [f"{nodes.bit_count()} in {kind.value}" for kind, nodes in written]
    return ", ".join([arithmetic(piece.backend, piece.variant).value, *lower])


def _declared(arg: NodeArg) -> str:
    return f"{arg.type}[{', '.join('?' if size is None else str(size) for size in arg.shape)}]"


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
        reasons = (((entry.device_of[variant], reason), variant) for variant, reason in entry.declined.items())
        for (device, reason), variants in multimap(reasons).items():
            console.print(f"{entry.name}: not on {device} as {', '.join(variants)}: {reason}", soft_wrap=True)


def _shown(variants: Sequence[str]) -> list[str]:
    """The first of many, and the number of the others; ``--json`` has all."""
    few = MOST if len(variants) > MOST + 1 else len(variants)
    return [*variants[:few], *([f"and {len(variants) - few} more"] if len(variants) > few else [])]


def _able(entry: Entry, device: str) -> list[str]:
    """The variants that run on ``device``, without those that are declined here."""
    return [name for name, its in entry.device_of.items() if its == device and name not in entry.declined]


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
