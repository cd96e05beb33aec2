"""The route of a program over two memories: calls, copies and waits, and the dependencies of the device's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage_evo.graph.ir.memory import StepUse, all_before
from collage_evo.runtime.plan import Lifetime
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
        device: use of the tensors on the device by its steps, in every order that :func:`waits_of` allows; inputs and
            outputs throughout, as far as they are there.
    """

    before: tuple[ToDevice, ...]
    body: tuple[Command, ...]
    after: tuple[ToHost, ...]
    host_inputs: tuple[str, ...]
    host: tuple[Lifetime, ...]
    device: StepUse

    @property
    def whole(self) -> tuple[Command, ...]:
        """A run from host to host."""
        return (*self.before, *self.body, *self.after, Wait())


def waits_of(steps: Sequence[Command], program: Program, pools: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """For each step the earlier ones that must have ended: makers of its inputs, and users of its piece's pool.

    Copies in one direction share the device's copy engine. A step of the host, and a wait, comes after all earlier
    steps and before all later ones.

    Args:
        pools: for each piece the name of memory that it shares with other pieces; empty if it shares none.
    """
    waits: list[tuple[int, ...]] = []
    last: dict[tuple[str, object], int] = {}
    barrier: tuple[int, ...] = ()
    for place, step in enumerate(steps):
        reads, makes = _device_use(step, program)
        needed = {last[tensor] for tensor in (("tensor", name) for name in reads) if tensor in last}
        resource: tuple[str, object] | None = None
        match step:
            case RunPiece(_, False) | Wait():
                waits.append(tuple(range(place)))
                barrier = (place,)
                continue
            case RunPiece(index, True):
                resource = ("pool", pools[index]) if pools[index] else None
            case ToDevice() | ToHost():
                resource = ("copies", type(step))
        if resource is not None:
            needed |= {last[resource]} if resource in last else set()
            last[resource] = place
        waits.append(tuple(sorted({*barrier, *needed})))
        last.update((("tensor", name), place) for name in makes)
    return tuple(waits)


def route_of(program: Program, on_device: Sequence[bool], pools: Sequence[str]) -> Route:
    """The steps of ``program``, whose pieces run on the device or not; ``pools`` is as in :func:`waits_of`."""
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
        tuple(alive(_on_host(program, body, after), program.inputs, program.outputs, program.tensors)),
        _on_device(program, body, pools, inputs, lasting),
    )


def _on_host(program: Program, body: Sequence[Command], after: Sequence[ToHost]) -> list[Touched]:
    """The tensors that each step uses on the host, and after them those of the end.

    The source of a copy to the device is read until the next wait; the target of a copy back after all steps may be
    written as soon as its source is made.
    """
    touched: list[Touched] = []
    leaving: list[str] = []
    coming = {step.tensor for step in after}
    for step in (*body, Wait()):
        match step:
            case RunPiece(index, False):
                piece = program.pieces[index]
                touched.append(Touched(piece.inputs, piece.outputs))
            case RunPiece(index, True):
                outputs = program.pieces[index].outputs
                touched.append(Touched(makes=tuple(name for name in outputs if name in coming)))
            case ToHost(name):
                touched.append(Touched(makes=(name,)))
            case ToDevice(name):
                leaving.append(name)
                touched.append(Touched(reads=(name,)))
            case Wait():
                touched.append(Touched(reads=tuple(leaving)))
                leaving.clear()
    return touched


def _on_device(
    program: Program, body: Sequence[Command], pools: Sequence[str], inputs: Sequence[str], lasting: Sequence[str]
) -> StepUse:
    """Each step's tensors on the device, between a first step that makes the inputs and a last one that reads all."""
    waits = [tuple(step + 1 for step in needed) or (0,) for needed in waits_of(body, program, pools)]
    end = len(body) + 1
    used = StepUse(all_before(((), *waits, range(end))))

    def add(step: int, reads: Sequence[str], makes: Sequence[str]) -> None:
        static = [[name for name in names if program.tensors[name].static] for names in (reads, makes)]
        used.add(step, *static)

    add(0, (), inputs)
    for place, step in enumerate(body, 1):
        add(place, *_device_use(step, program))
    add(end, (*inputs, *lasting), ())
    return used


def _device_use(step: Command, program: Program) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tensors that a step reads and makes on the device."""
    match step:
        case RunPiece(index, True):
            return program.pieces[index].inputs, program.pieces[index].outputs
        case ToDevice(name):
            return (), (name,)
        case ToHost(name):
            return (name,), ()
    return (), ()
