"""Terminal output for an artifact and its timing."""

from __future__ import annotations

from collage_evo.errors import printable
from collage_evo.report.words import format_shapes
from collage_evo.runtime.artifact import Artifact
from collage_evo.runtime.bench import BenchReport
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import NodeArg


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
