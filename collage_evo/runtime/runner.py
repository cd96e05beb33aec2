"""Runs the pieces of one program one after the other on one planned arena of memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from collage_evo.backends.base import DynamicExecutable, Executable, Target
from collage_evo.backends.registry import get_backend
from collage_evo.errors import CannotLoad, CollageError, InputError, one_line
from collage_evo.graph.ir import OPAQUE, Tensor
from collage_evo.runtime.plan import allocate, plan_memory
from collage_evo.runtime.pools import from_first_core, workers_apart
from collage_evo.runtime.program import Piece, Program, lifetimes


class Runner:
    """A loaded program. Not for several threads at a time.

    Raises:
        InputError: its schedule lets pieces run at the same time.
    """

    def __init__(self, program: Program, target: Target) -> None:
        program.schedule.require_sequential()
        self.program = program
        self._threads = target.threads
        self._caller = threading.local()
        self._buffers = allocate(plan_memory(lifetimes(program)), program.tensors)
        self._values: dict[str, Any] = {}
        """What tensors hold that are not static and so have no buffer."""
        self._executables: list[Executable] = []
        calls = []
        with workers_apart(target.threads):
            for piece in program.pieces:
                try:
                    executable = _load(piece, program, target)
                    self._executables.append(executable)
                    calls.append(self._bound(piece, executable))
                except CollageError:
                    raise
                except Exception as error:  # a library may raise anything over a file that is not what it seems
                    told = f"cannot load a region ({type(error).__name__}: {one_line(error)})"
                    raise CannotLoad(f"{piece.backend} {told}: run the search again") from error
        self._regions: tuple[Callable[[], None], ...] = tuple(calls)
        self._calls: tuple[Callable[[], object], ...] = from_first_core(self._regions, target.threads)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Check what :func:`as_value` made of every input, and copy it into the buffers.

        Raises:
            InputError: an input is of another dtype or shape.
        """
        for name in self.program.inputs:
            value, tensor = feeds[name], self.program.tensors[name]
            if tensor.dtype != OPAQUE and not _fits(value, tensor):
                raise InputError(f"input '{name}' is {written(value)}; this model takes {_open(tensor)}")
            if name in self._buffers:
                np.copyto(self._buffers[name], value)
            elif tensor.dtype == OPAQUE:
                self._values[name] = value
            else:
                self._values[name] = np.ascontiguousarray(value, tensor.dtype).reshape(value.shape)

    def execute(self) -> None:
        """Run once on what ``feed`` left in the input buffers; nothing is copied or allocated here."""
        for call in self._calls:
            call()

    def execute_here(self) -> None:
        """Run once, for a thread that may not have called before: some libraries start a pool for each that calls."""
        if hasattr(self._caller, "known"):
            self.execute()
            return
        with workers_apart(self._threads):
            self.execute()
        self._caller.known = True

    def read(self, name: str) -> Any:
        """What a tensor holds now, as the caller's own: an input as it was fed, an output of the last run."""
        return self._buffers[name].copy() if name in self._buffers else self._values[name]

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the inputs that were fed last."""
        spent = []
        for call in self._regions:
            start = time.perf_counter()
            call()
            spent.append((time.perf_counter() - start) * 1e3)
        return spent

    def close(self) -> None:
        """Let go of all compiled regions and buffers."""
        self._calls = self._regions = (closed,)
        self._executables.clear()
        self._buffers, self._values = {}, {}

    def _bound(self, piece: Piece, executable: Executable) -> Callable[[], None]:
        if all(name in self._buffers for name in (*piece.inputs, *piece.outputs)):
            return executable.bind(
                [self._buffers[name] for name in piece.inputs], [self._buffers[name] for name in piece.outputs]
            )
        if not isinstance(executable, DynamicExecutable):
            raise InputError(f"{piece.backend} runs no piece with open shapes: run the search again")
        return partial(self._run_open, piece, executable)

    def _run_open(self, piece: Piece, executable: DynamicExecutable) -> None:
        """Run a piece whose tensors are not all static: the library allocates what it makes."""
        made = executable.run([self._buffers.get(name, self._values.get(name)) for name in piece.inputs])
        for name, value in zip(piece.outputs, made, strict=True):
            if name in self._buffers:
                np.copyto(self._buffers[name], value)
            else:
                self._values[name] = value


def as_value(given: Any, tensor: Tensor) -> Any:
    """What ONNX Runtime would take ``given`` for: a list is read as the model's type, an array keeps its own."""
    if tensor.dtype == OPAQUE or isinstance(given, np.ndarray):
        return given
    numpy = getattr(given, "numpy", None)  # an OrtValue, a tensor of PyTorch
    try:
        return np.asarray(numpy() if callable(numpy) else given, tensor.dtype if isinstance(given, list) else None)
    except (TypeError, ValueError) as error:
        raise InputError(f"input '{tensor.name}' is no array: {one_line(error)}") from error


def written(value: np.ndarray) -> str:
    """An array's dtype and shape, as in ``float32[1, 3]``."""
    return f"{value.dtype}{list(value.shape)}"


def closed() -> None:
    """What a session that was closed does.

    Raises:
        InputError: always.
    """
    raise InputError("this session is closed: load the artifact again")


def _fits(value: np.ndarray, tensor: Tensor) -> bool:
    shape = tensor.shape
    return (
        value.dtype.newbyteorder("=") == tensor.dtype
        and len(value.shape) == len(shape)
        and all(known in (-1, size) for known, size in zip(shape, value.shape, strict=True))
    )


def _open(tensor: Tensor) -> str:
    sizes = ", ".join("?" if size < 0 else str(size) for size in tensor.shape)
    return f"{tensor.dtype}[{sizes}]"


def _load(piece: Piece, program: Program, target: Target) -> Executable:
    inputs = [program.tensors[name] for name in piece.inputs]
    outputs = [program.tensors[name] for name in piece.outputs]
    backend = get_backend(piece.backend)
    return backend.load(piece.directory, target, backend.variant(piece.variant), inputs, outputs)
