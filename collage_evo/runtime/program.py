"""A compiled placement as plain data: pieces in the order in which they run, and the tensors between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collage_evo.graph.ir import Tensor
from collage_evo.patterns.schedule import SEQUENTIAL, Schedule
from collage_evo.runtime.plan import Lifetime

Shapes = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Piece:
    """One compiled region: where its files lie, who runs it, and the tensors that go in and out, in order."""

    directory: Path
    backend: str
    variant: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    backend_version: str = ""


@dataclass(frozen=True)
class Program:
    """Pieces in the order of ``schedule``, with the model's inputs, outputs and all tensors between."""

    pieces: tuple[Piece, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    schedule: Schedule = SEQUENTIAL

    @property
    def shapes(self) -> Shapes:
        """What it is for: the shape of each input, None for one that takes several."""
        tensors = [self.tensors[name] for name in self.inputs]
        return tuple(tensor.shape if tensor.static else None for tensor in tensors)


def lifetimes(program: Program) -> list[Lifetime]:
    """When each static tensor is alive, in steps of the program; inputs and outputs live throughout.

    Inputs outlive their last use so that a session can run again without being fed again.
    """
    steps = program.schedule.steps(len(program.pieces))
    last_step = len(steps)
    first: dict[str, int] = dict.fromkeys(program.inputs, -1)
    last: dict[str, int] = dict.fromkeys(program.inputs, last_step)
    for step, piece in ((step, program.pieces[index]) for step, together in enumerate(steps) for index in together):
        for name in piece.inputs:
            last[name] = max(last.get(name, step), step)
        for name in piece.outputs:
            first.setdefault(name, step)
            last[name] = max(last.get(name, step), step)
    for name in program.outputs:
        last[name] = last_step
    return [
        Lifetime(program.tensors[name], first[name], last[name]) for name in first if program.tensors[name].static
    ]
