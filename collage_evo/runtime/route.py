"""The steps of a program on two memories: takes pieces and who runs on the device, gives calls, copies and waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.runtime.plan import Lifetime
from collage_evo.runtime.program import Program, Touched, alive


@dataclass(frozen=True)
class Call:
    """Run a piece; on the device it is enqueued only."""

    piece: int
    on_device: bool


@dataclass(frozen=True)
class ToDevice:
    """Enqueue a copy of a tensor to the device. Its source must stay as it is until a wait."""

    tensor: str


@dataclass(frozen=True)
class ToHost:
    """Enqueue a copy of a tensor to the host, where it may be read after a wait."""

    tensor: str


@dataclass(frozen=True)
class Wait:
    """Until all that was enqueued has run."""


Step = Call | ToDevice | ToHost | Wait


@dataclass(frozen=True)
class Route:
    """A run, host to host: ``before``, ``body``, ``after``, and a wait.

    Attributes:
        before: copies of the inputs that the device reads.
        body: pieces in the order in which they run; a tensor is copied once, by who makes it, to who else reads it.
            A piece on the host waits only if it reads what the device made.
        after: copies of the outputs that nobody copied in the body.
        host_inputs: inputs that must be on the host too, be it only to be given out.
        host: when tensors are alive on the host, in steps of the body; inputs and outputs throughout.
        device: the same for the device.
    """

    before: tuple[ToDevice, ...]
    body: tuple[Step, ...]
    after: tuple[ToHost, ...]
    host_inputs: tuple[str, ...]
    host: tuple[Lifetime, ...]
    device: tuple[Lifetime, ...]

    @property
    def whole(self) -> tuple[Step, ...]:
        """A run from host to host."""
        return (*self.before, *self.body, *self.after, Wait())


def route_of(program: Program, on_device: Sequence[bool]) -> Route:
    """The steps of ``program``, whose pieces run on the device or not."""
    readers = list(zip(program.pieces, on_device, strict=True))
    for_device = {name for piece, device in readers if device for name in piece.inputs}
    for_host = {name for piece, device in readers if not device for name in piece.inputs}
    made_there = {name for piece, device in readers if device for name in piece.outputs}
    empty = {name for name, tensor in program.tensors.items() if tensor.static and not tensor.nbytes}

    body: list[Step] = []
    coming: set[str] = set()  # on their way to the host
    for index, (piece, device) in enumerate(readers):
        if not device and coming.intersection(piece.inputs):
            body.append(Wait())
            coming.clear()
        body.append(Call(index, device))
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
    return Route(
        tuple(ToDevice(name) for name in inputs if name not in empty),
        tuple(body),
        tuple(ToHost(name) for name in outputs if name not in for_host | empty),
        tuple(name for name in program.inputs if name in for_host or name in program.outputs),
        tuple(alive(_on_host(program, body), program.inputs, program.outputs, program.tensors)),
        tuple(alive(_on_device(program, body), inputs, outputs, program.tensors)),
    )


def _on_host(program: Program, body: Sequence[Step]) -> list[Touched]:
    """What each step touches on the host, and after them the end. What is copied is read until the next wait."""
    touched: list[Touched] = []
    leaving: list[str] = []
    for step in (*body, Wait()):
        match step:
            case Call(index, False):
                piece = program.pieces[index]
                touched.append(Touched(piece.inputs, piece.outputs))
            case ToHost(name):
                touched.append(Touched(makes=(name,)))
            case ToDevice(name):
                leaving.append(name)
                touched.append(Touched(reads=(name,)))
            case Wait():
                touched.append(Touched(reads=tuple(leaving)))
                leaving.clear()
            case _:
                touched.append(Touched())
    return touched


def _on_device(program: Program, body: Sequence[Step]) -> list[Touched]:
    touched: list[Touched] = []
    for step in body:
        match step:
            case Call(index, True):
                piece = program.pieces[index]
                touched.append(Touched(piece.inputs, piece.outputs))
            case ToDevice(name):
                touched.append(Touched(makes=(name,)))
            case ToHost(name):
                touched.append(Touched(reads=(name,)))
            case _:
                touched.append(Touched())
    return touched
