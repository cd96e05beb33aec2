"""Trace of an artifact: when its regions ran, and within them the operators of libraries that tell."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collage_evo.backends.base import Executable, Target
from collage_evo.backends.profiled import HasTimeline, Kernel, KernelsOfRuns
from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import arithmetic_of
from collage_evo.errors import InputError
from collage_evo.multimap import multimap
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import load_piece

Naming = Callable[[Sequence[Kernel]], Sequence[tuple[str, ...]]]
"""Tells for each kernel of a piece the names of its nodes in the user's file."""
LEAST = 0.05
"""Share of a region's time below which a precision is not named. Chosen."""
_END = re.compile(r"[/_.:]?[^/_.:]*$")
"""The last part of a name, which a library may have added to it."""


@dataclass(frozen=True)
class Event:
    """What one region did in one run, or one operator of its library.

    Attributes:
        run: number of the run.
        region: number of the region, in the order in which they run.
        library: name of its backend.
        precision: of an operator as the library tells it, else the arithmetic of its variant; of a region those in
            which it spends more than ``LEAST`` of its time, the one that took longest first.
        operator: the library's kind of operator; empty for a region.
        label: the library's name of the operator; empty for a region.
        nodes: their names in the user's file; of an operator those that are known.
        start_us: microseconds since the first run began.
        us: how long it took, in microseconds.
        thread: the operating system's number of the thread that called it.
        placed: whether the library only tells durations, so that operators follow one another from the beginning of
            their region, each with its mean over all runs, shortened where they take longer together than the region.
    """

    run: int
    region: int
    library: str
    precision: str
    operator: str
    label: str
    nodes: tuple[str, ...]
    start_us: float
    us: float
    thread: int
    placed: bool = False


def trace_artifact(
    artifact: Path,
    feeds: Mapping[str, Any],
    runs: int = 10,
    warmup: int = 3,
    namings: Mapping[Piece, Naming] = MappingProxyType({}),
) -> tuple[Event, ...]:
    """Load ``artifact`` with the profilers of its libraries on, and run it ``warmup`` + 1 + ``runs`` times.

    Times include what the profilers take.

    Args:
        artifact: its directory, or as :func:`load_artifact`.
        feeds: the inputs.
        runs: number of runs that are returned.
        warmup: number of runs before these, besides a first one.
        namings: for pieces what tells the nodes of their kernels. By default a library's names are those of nodes in
            the user's file, as where it compiled that.

    Returns:
        By run the event of each region, followed by those of its operators.

    Raises:
        InputError: the artifact or the inputs cannot be used, or an accelerator takes part.
        UnavailableError: as :func:`load_artifact`.
    """
    kernels_of: dict[Piece, KernelsOfRuns] = {}

    def load(piece: Piece, program: Program, target: Target) -> Executable:
        backend, inputs = get_backend(piece.backend), [program.tensors[name] for name in piece.inputs]
        variant = backend.variant(piece.variant)
        if not (isinstance(backend, HasTimeline) and backend.profiles(variant)):
            return load_piece(piece, program, target)
        loaded, kernels_of[piece] = backend.load_profiled(piece.directory, target, variant, inputs)
        return loaded

    with load_artifact(artifact, load=load) as session:
        for _ in range(1 + warmup):
            session.run(None, feeds)
        session.feed(feeds)
        spans = [session.spans() for _ in range(runs)]
        pieces = session.program.pieces
        kernels = [kernels_of[piece](runs) if piece in kernels_of else [()] * runs for piece in pieces]
    if any(len(of_piece) < runs for of_piece in kernels):
        raise InputError("a library records a million operators of all runs at most: time fewer runs")
    its_own = {piece: partial(named_nodes, {name: name for name in piece.nodes}) for piece in pieces}
    named = [_by_labels(namings.get(piece) or its_own[piece]) for piece in pieces]
    return tuple(
        event
        for run, spans_of_run in enumerate(spans)
        for region, (piece, (begin_us, us)) in enumerate(zip(pieces, spans_of_run, strict=True))
        for event in _events(
            run,
            region,
            piece,
            begin_us - spans[0][0][0],
            us,
            kernels[region][run],
            named[region],
        )
    )


def _by_labels(naming: Naming) -> Naming:
    """``naming``, which compiles or reads a model, called once for the same kernels of several runs."""
    known: dict[tuple[str, ...], Any] = {}

    def named(kernels: Sequence[Kernel]) -> Any:
        labels = tuple(kernel.label for kernel in kernels)
        if labels not in known:
            known[labels] = naming(kernels)
        return known[labels]

    return named


def _events(
    run: int,
    region: int,
    piece: Piece,
    begin_us: float,
    us: float,
    kernels: Sequence[Kernel],
    naming: Naming,
) -> Iterator[Event]:
    """The event of a region that began and took so long, and those of its ``kernels``."""
    thread, computes_in = threading.get_native_id(), arithmetic_of(piece.backend, piece.variant).value
    times_us = multimap((kernel.precision or computes_in, kernel.us) for kernel in kernels)
    longest = sorted(times_us, key=lambda one: -sum(times_us[one]))
    mostly = " + ".join(one for one in longest if sum(times_us[one]) > LEAST * us) or computes_in
    yield Event(run, region, piece.backend, mostly, "", "", piece.nodes, begin_us, us, thread)
    at_us, scale = 0.0, us / max(us, sum(kernel.us for kernel in kernels if kernel.start_us is None))
    for kernel, nodes in zip(kernels, naming(kernels) if kernels else (), strict=True):
        yield Event(
            run,
            region,
            piece.backend,
            kernel.precision or computes_in,
            kernel.kind,
            kernel.label,
            nodes,
            begin_us + (at_us if kernel.start_us is None else kernel.start_us),
            scale * kernel.us,
            thread,
            placed=kernel.start_us is None,
        )
        at_us += scale * kernel.us


def named_nodes(names: Mapping[str, Any], kernels: Sequence[Kernel]) -> list[tuple[Any, ...]]:
    """For each of ``kernels`` the nodes whose names, or those of their tensors, are in the library's name for it.

    ``names``: the nodes by their names, or by those of the tensors that they make. A library may add parts to these.
    """
    return [
        tuple(dict.fromkeys(names[known] for name in kernel.label.split(",") if (known := _known(name, names))))
        for kernel in kernels
    ]


def _known(name: str, names: Collection[str]) -> str:
    """The longest beginning of ``name`` in whole parts that is one of ``names``; empty if there is none."""
    return name if not name or name in names else _known(_END.sub("", name, count=1), names)
