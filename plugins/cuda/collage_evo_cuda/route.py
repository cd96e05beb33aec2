"""The route of a program over two memories: calls, copies and waits, and what each memory holds during them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.graph.ir.memory import Lifetime
from collage_evo.runtime.program import Program, Touched, alive


@dataclass(frozen=True)
class RunPiece:
    """Run a piece; on the device this only enqueues it."""

    piece: int
    on_device: bool


@dataclass(frozen=True)
class ToDevice:
    """Enqueue a copy of a tensor to the device. Its source must not change until a wait."""

    tensor: str


@dataclass(frozen=True)
class ToHost:
    """Enqueue a copy of a tensor to the host, readable there after a wait."""

    tensor: str


@dataclass(frozen=True)
class Wait:
    """Wait until all enqueued work has run."""


Command = RunPiece | ToDevice | ToHost | Wait


@dataclass(frozen=True)
class Route:
    """A run, host to host: ``before``, ``body``, ``after``, and a wait.

    Attributes:
        before: copies of the inputs that the device reads.
        body: pieces in execution order; a tensor is copied once, after its maker, if the other side reads it. A piece
            on the host waits only if it reads a result of the device.
        after: copies of the outputs that the body does not copy.
        host_inputs: inputs that must be on the host too, possibly only as outputs.
        host: lifetimes of tensors on the host, in steps of the body; inputs and outputs throughout.
        device: the same on the device, which runs its steps in their order; inputs and outputs throughout, as far as
            they are there.
    """

    before: tuple[ToDevice, ...]
    body: tuple[Command, ...]
    after: tuple[ToHost, ...]
    host_inputs: tuple[str, ...]
    host: tuple[Lifetime, ...]
    device: tuple[Lifetime, ...]

    @property
    def whole(self) -> tuple[Command, ...]:
        """A run from host to host."""
        return (*self.before, *self.body, *self.after, Wait())


def route_of(program: Program, on_device: Sequence[bool]) -> Route:
    """The steps of ``program``, whose pieces run on the device or not."""
    readers = list(zip(program.pieces, on_device, strict=True))
    for_device = {name for piece, device in readers if device for name in piece.inputs}
    for_host = {name for piece, device in readers if not device for name in piece.inputs}
    made_there = {name for piece, device in readers if device for name in piece.outputs}
    empty = {name for name, tensor in program.tensors.items() if tensor.static and not tensor.nbytes}

    body: list[Command] = []
    coming: set[str] = set()  # pending copies to the host
    for index, (piece, device) in enumerate(readers):
        if not device and coming.intersection(piece.inputs):
            body.append(Wait())
            coming.clear()
        body.append(RunPiece(index, device))
        for name in piece.outputs:
            if name in empty:
                continue
            if device and name in for_host:
                body.append(ToHost(name))
                coming.add(name)
            elif not device and name in for_device:
                body.append(ToDevice(name))

    inputs = tuple(name for name in program.inputs if name in for_device)
    outputs = tuple(name for name in program.outputs if name in made_there)
    lasting = tuple(name for name in program.outputs if name in for_device | made_there)
    after = tuple(ToHost(name) for name in outputs if name not in for_host | empty)
    return Route(
        tuple(ToDevice(name) for name in inputs if name not in empty),
        tuple(body),
        after,
        tuple(name for name in program.inputs if name in for_host or name in program.outputs),
        tuple(alive(_on_host(program, body), program.inputs, program.outputs, program.tensors)),
        tuple(alive([_on_device(step, program) for step in body], inputs, lasting, program.tensors)),
    )


def _on_host(program: Program, body: Sequence[Command]) -> list[Touched]:
    """The tensors that each step uses on the host, and after them those of the end.

    The source of a copy to the device is read until the next wait.
    """
    touched: list[Touched] = []
    leaving: list[str] = []
    for step in (*body, Wait()):
        match step:
            case RunPiece(index, False):
                piece = program.pieces[index]
                touched.append(Touched(piece.inputs, piece.outputs))
            case RunPiece():
                touched.append(Touched())
            case ToHost(name):
                touched.append(Touched(makes=(name,)))
            case ToDevice(name):
                leaving.append(name)
                touched.append(Touched(reads=(name,)))
            case Wait():
                touched.append(Touched(reads=tuple(leaving)))
                leaving.clear()
    return touched


def _on_device(step: Command, program: Program) -> Touched:
    """The tensors that a step uses on the device."""
    match step:
        case RunPiece(index, True):
            return Touched(program.pieces[index].inputs, program.pieces[index].outputs)
        case ToDevice(name):
            return Touched(makes=(name,))
        case ToHost(name):
            return Touched(reads=(name,))
    return Touched()
