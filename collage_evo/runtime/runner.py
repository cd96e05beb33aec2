"""Runner of one program: calls its pieces in order on planned memory, the host's and a device's."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from collage_evo.backends.base import DeviceExecutable, DynamicExecutable, Executable, Target
from collage_evo.backends.capabilities import StandsOnOthers, takes_open_inputs
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.devices.device import Device, DeviceArray
from collage_evo.devices.open import open_device
from collage_evo.errors import CannotLoad, CollageError, InputError, named_line, one_line
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.graph.ir.memory import allocate, plan_memory
from collage_evo.graph.reference.ort_values import from_ort_value
from collage_evo.runtime.checked import load_unchanged
from collage_evo.runtime.device_arrays import arrays_on, require_place
from collage_evo.runtime.device_work import BoundPiece, DeviceWork, exclusive
from collage_evo.runtime.forks import LINEAGE, left_behind, never_free
from collage_evo.runtime.input_limits import MaskedValues, plain_array
from collage_evo.runtime.limits import require_inside, reraise_index_error
from collage_evo.runtime.pages import on_huge_pages
from collage_evo.runtime.pools import from_first_core, workers_apart
from collage_evo.runtime.program import Piece, Program, lifetimes
from collage_evo.target.target import CPU

Loader = Callable[[Piece, Program, Target], Executable | DeviceExecutable]
"""Loads a piece of a program, or returns it from a cache."""


class Runner:
    """A loaded program, with pieces from ``load``. Not for several threads at a time."""

    def __init__(self, program: Program, target: Target, load: Loader | None = None) -> None:
        self.program = program
        self._load = load or load_piece
        self._threads = target.threads
        waiting = {name for piece in program.pieces if (name := _waits_after_fork(piece, target.threads))}
        LINEAGE.use(waiting)
        self._forks = not waiting
        self._caller = threading.local()
        devices = [device_of(piece.backend, piece.variant) for piece in program.pieces]
        on_device = [name != CPU for name in devices]
        self._work: DeviceWork | None = None
        self._values: dict[str, Any] = {}
        """Values of tensors without a buffer."""
        self._held: dict[str, Any] = {}
        """Those that stay after a run."""
        self._executables: list[Executable | DeviceExecutable] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(on_huge_pages())
            stack.enter_context(workers_apart(target.threads))
            if any(on_device):
                device = open_device(devices[on_device.index(True)])
                stack.enter_context(exclusive(device))  # loading allocates and waits, which breaks others' captures
                self._work = DeviceWork(device, program, on_device)
                self._buffers = self._work.host
            else:
                handed_over = _handed_over(program) if target.device == CPU else set()
                lives = [life for life in lifetimes(program) if life.name not in handed_over]
                self._buffers = allocate(plan_memory(lives), program.tensors)
            pieces = zip(program.pieces, on_device, strict=True)
            parts = tuple(self._loaded(piece, target, there) for piece, there in pieces)
            if self._work is not None:
                self._work.device.settle()  # weights may still be in copy on a library's own stream
        self._regions: tuple[Callable[[], None], ...] = tuple(part.call for part in parts)
        calls = self._regions
        if self._work is not None:
            self._work.parts, calls = parts, (self._work.execute,)
        self._calls: tuple[Callable[[], object], ...] = from_first_core(calls, target.threads)
        LINEAGE.register(self)

    @property
    def device(self) -> Device | None:
        """The program's device; None if all pieces run on the host."""
        return self._work.device if self._work else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on work that runs worse than it could, with reasons; complete after the first run."""
        return tuple(dict.fromkeys(self._work.notes)) if self._work else ()

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Check every input, a result of :func:`as_value`, and copy it into the buffers.

        Inputs with limits are copied before the check: the caller's array may change until the run reads it. A
        refused request does not change the buffers.

        Raises:
            InputError: an input is of another dtype or shape, or an index is outside the tensor that it indexes.
        """
        if self.program.limits:
            feeds = {**feeds, **{name: np.array(feeds[name]) for name in self.program.limits}}
        for name in self.program.inputs:
            value, tensor = feeds[name], self.program.tensors[name]
            if tensor.dtype != OPAQUE:
                require_fit(value, tensor)
        require_inside(feeds, self.program.limits)
        for name in self.program.inputs:
            value, tensor = feeds[name], self.program.tensors[name]
            if name in self._buffers:
                np.copyto(self._buffers[name], value)
            elif tensor.dtype == OPAQUE:
                self._values[name] = value
            else:
                self._values[name] = np.ascontiguousarray(value, tensor.dtype).reshape(value.shape)

    def execute(self) -> None:
        """Run once on the input buffers that ``feed`` filled; nothing is copied or allocated here."""
        for call in self._calls:
            call()

    def execute_here(self) -> None:
        """Run once on a thread that may be new: some libraries start a pool for each calling thread.

        Raises:
            InputError: a library that checks indices itself found one out of bounds.
        """
        try:
            if hasattr(self._caller, "known"):
                self.execute()
                return
            with workers_apart(self._threads):
                self.execute()
        except Exception as error:  # each library has its own
            reraise_index_error(error)
            raise
        self._caller.known = True

    def read(self, name: str) -> Any:
        """The present value of a tensor, owned by the caller: a fed input, or an output of the last run.

        Raises:
            InputError: it has no value, or there is no such tensor.
        """
        if isinstance(name, str) and name in self._buffers:
            return self._buffers[name].copy()
        if isinstance(name, str) and name in self._values:
            value = self._values[name]
            return value.copy() if isinstance(value, np.ndarray) else copy.deepcopy(value)
        if self._regions == (closed,):
            closed()
        raise InputError(f"{name!r} holds nothing: it is no tensor of the program that runs, or nothing ran yet")

    def hand_over(self, names: Sequence[str]) -> list[Any]:
        """Outputs of the last run, owned by the caller; those that a library allocated are not copied, so call
        :meth:`forget`.

        Raises:
            InputError: as :meth:`read`.
        """
        if not self._values:  # most programs
            return [self.read(name) for name in names]
        outputs, copied = list[Any](), set(self.program.inputs)
        for name in names:
            outputs.append(self.read(name) if name in copied or name not in self._values else self._values[name])
            copied.add(name)
        return outputs

    def hold(self) -> None:
        """Keep the fed inputs for runs by :meth:`execute`."""
        self._held = {name: self._values[name] for name in self.program.inputs if name in self._values}

    def forget(self) -> None:
        """Release what the last run was fed, and the outputs that libraries allocated in it; held inputs stay."""
        if self._values:
            self._values = self._held.copy()

    def copies(self, name: str) -> tuple[Any, ...]:
        """The present value of a tensor in each memory that has it, owned by the caller; an input of open shape is in
        none of the session's."""
        if isinstance(name, str) and name in self.program.inputs and name not in self._buffers:
            return ()
        here = self.read(name)
        there = (self._work.held(name),) if self._work and name in self._work.arrays else ()
        return (here, *there)

    def run_on_device(self, device: Device, feeds: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Outputs by name as arrays on ``device`` that the caller owns, for inputs on it.

        The caller must be in :func:`exclusive` with the device.

        Raises:
            InputError: as :meth:`feed`; or an input or output has no fixed shape.
        """
        program, work = self.program, self._work
        tensors = program.tensors
        if missing := [name for name in (*program.inputs, *program.outputs) if not tensors[name].static]:
            raise InputError(f"{missing[0]!r} has an open shape and cannot lie on the device: call run")
        for name, array in feeds.items():
            require_fit(array, tensors[name])
        on_host = set(work.route.host_inputs if work and work.warm else program.inputs).difference(program.limits)
        outputs = arrays_on(device, [tensors[name] for name in program.outputs])
        for name, array in feeds.items():
            require_place(name, array, next(iter(outputs.values())).place)
        # The caller's array may change: pieces on the device, too, must read the checked values.
        checked = {name: np.empty(tensors[name].shape, tensors[name].dtype) for name in program.limits}
        for name, copied in checked.items():
            device.copy_out(copied, feeds[name])
        if checked:
            device.synchronise()
            require_inside(checked, program.limits)
        for name, array in feeds.items():
            there = work.arrays.get(name) if work else None
            if name in checked:
                np.copyto(self._buffers[name], checked[name])
                if there is not None:
                    device.copy_in(there, self._buffers[name])
                continue
            if there is not None:
                device.copy(there, array)
            if name in on_host:
                device.copy_out(self._buffers[name], array)
        if on_host:
            device.synchronise()
        try:
            if work is None or not work.warm:
                self.execute()
            if work:
                work.execute_body()
        except Exception as error:  # each library has its own
            reraise_index_error(error)
            raise
        for name, array in outputs.items():
            if work and name in work.arrays:
                device.copy(array, work.arrays[name])
            else:
                device.copy_in(array, self._buffers[name])
        return outputs

    def time_device_ms(self, flush_bytes: int = 0) -> float:
        """:meth:`DeviceWork.time_ms`.

        Raises:
            InputError: no piece runs on a device.
        """
        if self._work is None:
            raise InputError("no piece of this program runs on a device: time it by the clock")
        return self._work.time_ms(flush_bytes)

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the last fed inputs; on a device without captures."""
        if self._work is not None:
            return self._work.profile()
        spent = []
        for call in self._regions:
            start = time.perf_counter()
            call()
            spent.append((time.perf_counter() - start) * 1e3)
        return spent

    def forked(self) -> None:
        """Refuse runs that would wait forever in a forked process, and do not free objects that would."""
        if self._threads > 1:
            never_free(self._executables, self._regions, self._calls)
            self._executables = []
        if not self._forks or self._work is not None:
            self._calls = self._regions = (left_behind,)

    def close(self) -> None:
        """Release all compiled regions and buffers."""
        self._calls = self._regions = (closed,)
        if self._work is not None:
            self._work.close()
        self._work = None
        self._executables.clear()
        self._buffers, self._values, self._held = {}, {}, {}

    def _loaded(self, piece: Piece, target: Target, on_device: bool) -> BoundPiece:
        try:
            def load() -> tuple[Executable | DeviceExecutable, BoundPiece]:
                executable = self._load(piece, self.program, target)
                return executable, self._bound(piece, executable, on_device)

            executable, bound = load_unchanged(piece.files, load)
            self._executables.append(executable)
            return bound
        except CollageError:
            raise
        except Exception as error:  # a library may raise anything for a corrupt file
            text = f"cannot load a region ({named_line(error)})"
            raise CannotLoad(f"{piece.backend} {text}: run the search again") from error

    def _bound(self, piece: Piece, executable: Executable | DeviceExecutable, on_device: bool) -> BoundPiece:
        name = engine_name(piece.backend, piece.variant)
        arrays: Mapping[str, Any] = self._work.arrays if on_device and self._work else self._buffers
        if all(tensor in arrays for tensor in (*piece.inputs, *piece.outputs)):
            call = executable.bind([arrays[n] for n in piece.inputs], [arrays[n] for n in piece.outputs])
            return BoundPiece(name, call, isinstance(executable, DeviceExecutable) and executable.capturable)
        if on_device or not isinstance(executable, DynamicExecutable):
            raise InputError(f"{name} runs no piece with open shapes: run the search again")
        static = all(self.program.tensors[n].static for n in piece.inputs)
        if not takes_open_inputs(get_backend(piece.backend)) and not static:
            raise InputError(f"{name} does not refuse shapes that the piece cannot take: run the search again")
        return BoundPiece(name, partial(self._run_open, piece, executable))

    def _run_open(self, piece: Piece, executable: DynamicExecutable) -> None:
        """Run a piece whose tensors are not all static: the library allocates its outputs."""
        if missing := [name for name in piece.inputs if name not in self._buffers and name not in self._values]:
            raise InputError(f"{missing[0]!r} holds nothing: call feed before")
        inputs = [self._buffers.get(name, self._values.get(name)) for name in piece.inputs]
        try:
            outputs = executable.run(inputs)
        except Exception as error:  # each library has its own for shapes and values that an operator refuses
            raise InputError(f"{piece.backend} cannot run the model on these inputs: {one_line(error)}") from error
        for name, value in zip(piece.outputs, outputs, strict=True):
            if name in self._buffers:
                np.copyto(self._buffers[name], value)
            else:
                self._values[name] = value


def _handed_over(program: Program) -> set[str]:
    """Static tensors that pieces with open shapes make and no other piece reads: in a buffer they would be a copy."""
    pieces = [
        (piece, all(program.tensors[name].static for name in (*piece.inputs, *piece.outputs)))
        for piece in program.pieces
    ]
    outputs = {name for piece, static in pieces if not static for name in piece.outputs}
    return outputs.difference(name for piece, static in pieces if static for name in piece.inputs)


def as_value(value: Any, tensor: Tensor) -> Any:
    """``value`` as ONNX Runtime would read it: a list gets the model's type, an array retains its own."""
    if tensor.dtype == OPAQUE or type(value) is np.ndarray:
        return value
    numpy = None if isinstance(value, np.ndarray) else getattr(value, "numpy", None)  # as of a PyTorch tensor
    if hasattr(value, "data_type"):  # an OrtValue, also of a type that NumPy lacks
        numpy = partial(from_ort_value, value)
    try:
        array = numpy() if callable(numpy) else value
        return plain_array(array, tensor.dtype if isinstance(value, list) else None)
    except MaskedValues as error:
        raise InputError(f"input '{tensor.name}' {error}") from error
    except CollageError:
        raise
    except Exception as error:  # conversion may run anybody's code
        raise InputError(f"input '{tensor.name}' is no array: {one_line(error)}") from error


def written(value: np.ndarray | DeviceArray) -> str:
    """An array's dtype and shape, as in ``float32[1, 3]``."""
    return f"{value.dtype}{list(value.shape)}"


def closed() -> None:
    """Refuse to run: the session is closed.

    Raises:
        InputError: always.
    """
    raise InputError("this session is closed: load the artifact again")


def require_fit(value: np.ndarray | DeviceArray, tensor: Tensor) -> None:
    """
    Raises:
        InputError: ``value`` is of another dtype or shape than the input ``tensor``.
    """
    shape = tensor.shape
    if value.shape == shape and value.dtype == tensor.dtype:
        return  # most requests
    fits = (
        np.dtype(value.dtype).newbyteorder("=") == tensor.dtype
        and len(value.shape) == len(shape)
        and all(expected in (-1, size) for expected, size in zip(shape, value.shape, strict=True))
    )
    if not fits:
        raise InputError(f"input '{tensor.name}' is {written(value)}; this model takes {_open(tensor)}")


def _open(tensor: Tensor) -> str:
    sizes = ", ".join("?" if size < 0 else str(size) for size in tensor.shape)
    return f"{tensor.dtype}[{sizes}]"


def _waits_after_fork(piece: Piece, threads: int) -> str:
    """The backend for whose threads the piece would wait in a forked process; empty if there is none."""
    backend = get_backend(piece.backend)
    variant = backend.variant(piece.variant)
    if backend.runs_on_after_fork(variant, threads):
        return ""
    return backend.stands_on(variant)[0] if isinstance(backend, StandsOnOthers) else backend.name


def load_piece(piece: Piece, program: Program, target: Target) -> Executable | DeviceExecutable:
    """``piece``, loaded by its backend, ready to be bound."""
    inputs = [program.tensors[name] for name in piece.inputs]
    outputs = [program.tensors[name] for name in piece.outputs]
    backend = get_backend(piece.backend)
    return backend.load(piece.directory, target, backend.variant(piece.variant), inputs, outputs)
