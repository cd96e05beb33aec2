"""A compiled placement as plain data: pieces in execution order, and the tensors between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.memory import Lifetime
from collage_evo.runtime.checked import CheckedFile

Shapes = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Piece:
    """One compiled region: its directory, its backend and variant, and its input and output tensors, in order."""

    directory: Path
    backend: str
    variant: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    backend_version: str = ""
    files: tuple[CheckedFile, ...] = field(default=(), compare=False)
    """The files of an artifact's directory: they are loaded only if unchanged."""


@dataclass(frozen=True)
class Program:
    """Pieces in execution order, with the model's inputs, outputs and all tensors between."""

    pieces: tuple[Piece, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    limits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For inputs that pieces use as indices the least value, and one more than the greatest."""

    @property
    def shapes(self) -> Shapes:
        """The shape of each input, None for one that takes several."""
        tensors = [self.tensors[name] for name in self.inputs]
        return tuple(tensor.shape if tensor.static else None for tensor in tensors)

    @property
    def late(self) -> Program:
        """The same, whose files are read again when it is loaded."""
        pieces = (replace(piece, files=tuple(file.late for file in piece.files)) for piece in self.pieces)
        return replace(self, pieces=tuple(pieces))


def require_closed(program: Program) -> None:
    """Make sure that every tensor is made once, before it is read, and every output is made.

    Raises:
        ValueError: a tensor violates this; the message names it.
    """
    defined = set(program.inputs)
    if len(defined) != len(program.inputs) or len(set(program.outputs)) != len(program.outputs):
        raise ValueError("an input or output is named twice")
    for index, piece in enumerate(program.pieces):
        if missing := [name for name in piece.inputs if name not in defined]:
            raise ValueError(f"region {index} reads {missing[0]}, which nothing before it makes")
        if not piece.outputs:
            raise ValueError(f"region {index} makes nothing")
        for name in piece.outputs:
            if name in defined:
                raise ValueError(f"region {index} makes {name}, which is there already")
            defined.add(name)
    if missing := [name for name in program.outputs if name not in defined]:
        raise ValueError(f"nothing makes the output {missing[0]}")
    if missing := [name for name in program.limits if name not in program.inputs]:
        raise ValueError(f"{missing[0]} has limits and is no input")


@dataclass(frozen=True)
class Touched:
    """The tensors that one step reads and makes in one memory, by name."""

    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


def lifetimes(program: Program) -> list[Lifetime]:
    """The lifetime of each static tensor, in pieces of the program, where all of it runs in one memory."""
    touched = [Touched(piece.inputs, piece.outputs) for piece in program.pieces]
    return alive(touched, program.inputs, program.outputs, program.tensors)


def alive(
    steps: Sequence[Touched], inputs: Iterable[str], outputs: Iterable[str], tensors: Mapping[str, Tensor]
) -> list[Lifetime]:
    """The lifetime of each static tensor in one memory; inputs and outputs live until after the last step.

    Inputs outlive their last use so that a session can run again without being fed again.
    """
    first: dict[str, int] = dict.fromkeys(inputs, -1)
    last: dict[str, int] = dict.fromkeys(first, len(steps))
    for index, step in enumerate(steps):
        for name in (*step.reads, *step.makes):
            first.setdefault(name, index)
            last[name] = max(last.get(name, index), index)
    for name in outputs:
        first.setdefault(name, len(steps))
        last[name] = len(steps)
    static = (tensors[name] for name in first if tensors[name].static)
    return [Lifetime(tensor.name, tensor.nbytes, first[tensor.name], last[tensor.name]) for tensor in static]
