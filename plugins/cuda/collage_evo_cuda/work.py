"""The device's part of a loaded program: buffers on both sides, and copies, captures and waits as a list of calls."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from collage_evo.graph.ir.memory import allocate, plan_memory
from collage_evo.runtime.program import Program
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import CaptureError, Replay
from collage_evo_cuda.route import Command, RunPiece, ToDevice, ToHost, Wait, route_of

WARM_UP_RUNS = 2
"""Runs before a capture: in the first a library allocates, in the second it may still tune."""
STALE = 0.01
"""A replay whose relative error (2-norm) against the earlier run is larger did not record all work."""

Enqueue = Callable[[], None]
_ONE_AT_A_TIME = threading.RLock()
"""A process has one device with one stream: what one thread captures must not be mixed with another's work."""


@contextlib.contextmanager
def exclusive(device: Device) -> Iterator[None]:
    """Exclusive use of the device within the context, which ends when all of its work has run."""
    with _ONE_AT_A_TIME:
        try:
            yield
        finally:
            device.synchronise()


@dataclass(frozen=True)
class BoundPiece:
    """A piece bound to its buffers."""

    name: str
    """For messages."""
    call: Enqueue
    capturable: bool = False
    """Never on the host."""


class DeviceWork:
    """Runs a program with some pieces on the device. For any thread, one at a time.

    The first run executes everything twice, and then captures uninterrupted rows of the device's work; work that
    cannot be captured runs without, with the reason in ``notes``.

    Raises:
        OutOfDeviceMemory: the program's tensors do not fit.
    """

    def __init__(self, device: Device, program: Program, on_device: Sequence[bool]) -> None:
        self.device = device
        self.route = route_of(program, on_device)
        self.host = allocate(plan_memory(self.route.host), program.tensors, device.pinned)
        plan = plan_memory(self.route.device, device.alignment)
        arena = device.arena(plan.size)
        self._arena = arena(0, (plan.size,), "uint8")
        placed = (program.tensors[name] for name in plan.offsets)
        self.arrays = {tensor.name: arena(plan.offsets[tensor.name], tensor.shape, tensor.dtype) for tensor in placed}
        self.notes: list[str] = []
        self.parts: tuple[BoundPiece, ...] = ()
        """Every piece in order; set before the first run."""
        self._outputs = [name for name in program.outputs if name in self.host and name not in program.inputs]
        self._inputs = [name for name in program.inputs if name in self.host]
        self._uncapturable: set[int] = set()
        self._warmed_by = 0
        """Identity of the first run's thread."""
        self._whole: tuple[Enqueue, ...] = ()
        self._body: tuple[Enqueue, ...] = ()

    @property
    def warm(self) -> bool:
        """Whether the first run is over."""
        return bool(self._whole)

    def execute(self) -> None:
        """Run once from the host's buffers to the host's buffers, and wait until all work has run."""
        with _ONE_AT_A_TIME:
            if self._whole:
                self._run(self._whole)
            else:
                self._whole = self._warmed_up()

    def execute_body(self) -> None:
        """Run once on the contents of the device's buffers (on the host: ``route.host_inputs``); does not wait.

        Not for the first run.
        """
        with _ONE_AT_A_TIME:
            self._run(self._captured_body())

    def time_ms(self, flush_bytes: int) -> float:
        """Milliseconds by the device's events of a run on the fed inputs, without their copies.

        It first writes ``flush_bytes``, so that all data but the inputs, copied in afterwards, are cold. At the end
        outputs are on the host.
        """
        with _ONE_AT_A_TIME:
            if not self.warm:
                self.execute()
            body = self._captured_body()
            self.device.flush(flush_bytes)
            self._run(self._calls(self.route.before))
            ms = self.device.time_ms(partial(_in_turn, body))
            self._run(self._calls((*self.route.after, Wait())))
            return ms

    def profile(self) -> list[float]:
        """Milliseconds of each piece in a run without captures, by events on the device and the clock on the host."""
        spent: list[float] = []
        with _ONE_AT_A_TIME:
            for step in self.route.whole:
                (call,) = self._calls((step,))
                match step:
                    case RunPiece(_, True):
                        spent.append(self.device.time_ms(call))
                    case RunPiece():
                        began = time.perf_counter()
                        call()
                        spent.append((time.perf_counter() - began) * 1e3)
                    case _:
                        call()
        return spent

    def held(self, name: str) -> np.ndarray:
        """The present value of a tensor of the device, as an array that the caller owns."""
        array = self.arrays[name]
        copy = np.empty(array.shape, array.dtype)
        with exclusive(self.device):
            self.device.copy_out(copy, array)
        return copy

    def close(self) -> None:
        """Release captures, calls and buffers, in this order, once nothing uses them."""
        with contextlib.suppress(Exception), exclusive(self.device):  # a device that failed has nothing to wait for
            pass
        self._whole = self._body = ()
        self.parts = ()
        self.arrays, self.host = {}, {}
        del self._arena

    def _run(self, calls: Iterable[Enqueue]) -> None:
        try:
            _in_turn(calls)
        except BaseException:
            # Pending copies must not arrive in the buffers of a later run.
            with contextlib.suppress(Exception):
                self.device.synchronise()
            raise

    def _calls(self, steps: Iterable[Command]) -> tuple[Enqueue, ...]:
        return tuple(map(self._call, steps))

    def _call(self, step: Command) -> Enqueue:
        match step:
            case RunPiece(index, _):
                return self.parts[index].call
            case ToDevice(name):
                return partial(self.device.copy_in, self.arrays[name], self.host[name])
            case ToHost(name):
                return partial(self.device.copy_out, self.host[name], self.arrays[name])
            case Wait():
                return self.device.synchronise

    def _warmed_up(self) -> tuple[Enqueue, ...]:
        """The calls of a run, captured where possible; leaves the outputs of a run."""
        plain = self._calls(self.route.whole)
        there = [self.parts[step.piece] for step in self.route.body if isinstance(step, RunPiece) and step.on_device]
        unable = [part.name for part in there if not part.capturable]
        self.notes += [f"{name} not captured: it says that it cannot be" for name in unable]
        for _ in range(WARM_UP_RUNS):
            self._run(plain)
        self._warmed_by = threading.get_ident()
        captured = self._captured(self.route.whole)
        if not any(isinstance(call, Replay) for call in captured):
            return plain
        wanted = {name: self.host[name].copy() for name in self._outputs}
        if self._right(captured, plain, wanted):
            return captured
        self.notes.append("nothing is captured: a replay gave other outputs than the run before it")
        self._uncapturable.update(range(len(self.parts)))
        self._run(plain)
        return plain

    def _right(
        self, captured: Iterable[Enqueue], plain: Iterable[Enqueue], wanted: Mapping[str, np.ndarray]
    ) -> bool:
        """Whether a replay makes all of the outputs ``wanted`` anew."""
        # The capture would miss work on another stream, and the stale outputs of an earlier run would go unnoticed.
        self._run_on_zeros(plain)
        self._clear()
        self._run(captured)
        return all(_alike(self.host[name], array) for name, array in wanted.items())

    def _captured_body(self) -> tuple[Enqueue, ...]:
        if not self._body:
            if threading.get_ident() != self._warmed_by:  # libraries create handles and workspaces for each thread
                plain = self._calls(self.route.body)
                for _ in range(WARM_UP_RUNS):
                    self._run(plain)
            self._body = self._captured(self.route.body)
        return self._body

    def _run_on_zeros(self, plain: Iterable[Enqueue]) -> None:
        """Overwrite the inputs' traces in the libraries' own memory by a run on zeros; restores the inputs.

        Integers do not change: they may be indices or divisors, for which no other value need be valid.
        """
        inputs = [self.host[name] for name in self._inputs if self.host[name].dtype.kind not in "biu"]
        fed = [array.copy() for array in inputs]
        for array in inputs:
            array.fill(0)
        try:
            # A piece of the host may refuse zeros; those of the device have run on them or not.
            with contextlib.suppress(Exception):
                self._run(plain)
        finally:
            for array, before in zip(inputs, fed, strict=True):
                array[...] = before

    def _clear(self) -> None:
        """Clear the results of earlier runs, so that any value after the next run is its own."""
        zeros = np.zeros(self._arena.shape, np.uint8)
        self.device.copy_in(self._arena, zeros)
        self.device.synchronise()
        for name in self._outputs:
            self.host[name].fill(0)

    def _captured(self, steps: Iterable[Command]) -> tuple[Enqueue, ...]:
        """The calls of ``steps``, one for each captured row of them."""
        calls: list[Enqueue] = []
        row: list[Command] = []
        for step in (*steps, None):
            if step is not None and self._joins(step):
                row.append(step)
                continue
            calls += self._captured_row(row)
            row = []
            calls += () if step is None else self._calls((step,))
        return tuple(calls)

    def _joins(self, step: Command) -> bool:
        match step:
            case RunPiece(index, there):
                return there and self.parts[index].capturable and index not in self._uncapturable
            case Wait():
                return False
        return True

    def _captured_row(self, row: Sequence[Command]) -> tuple[Enqueue, ...]:
        plain = self._calls(row)
        pieces = [step.piece for step in row if isinstance(step, RunPiece)]
        if not pieces:
            return plain
        try:
            return (self.device.capture(partial(_in_turn, plain)),)
        except CaptureError as error:
            text = str(error)
        refused = {index: why for index in pieces if (why := self._refuses_capture(index))}
        if not refused:
            self.notes.append(f"{', '.join(self.parts[index].name for index in pieces)} not captured: {text}")
            return plain
        self.notes += [f"{self.parts[index].name} not captured: {why}" for index, why in refused.items()]
        self._uncapturable.update(refused)
        return self._captured(row)

    def _refuses_capture(self, index: int) -> str:
        """Why a single piece cannot be captured; empty if it can."""
        try:
            self.device.capture(self.parts[index].call)
        except CaptureError as error:
            return str(error)
        return ""


def _in_turn(calls: Iterable[Enqueue]) -> None:
    for call in calls:
        call()


def _alike(output: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two outputs are equal except for the order of sums; NaN and infinities must be in the same places."""
    if output.dtype.kind in "biu":
        return bool((output != expected).mean() <= STALE) if output.size else True
    a, b = (np.nan_to_num(array.astype(np.float64)) for array in (output, expected))
    return float(np.linalg.norm(a - b)) <= STALE * float(np.linalg.norm(b))
