"""Runs compiled regions one after the other on one planned arena of memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from collage_evo.backends.base import DynamicExecutable, Executable, Target
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.graph.ir import OPAQUE, Tensor
from collage_evo.runtime.plan import Lifetime, allocate, plan_memory
from collage_evo.runtime.pools import from_first_core, settle_pools, workers_apart


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
    """Pieces in the order in which they run, with the model's inputs, outputs and all tensors between."""

    pieces: tuple[Piece, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class NodeArg:
    """Name, numpy dtype name and shape of an input or output, in ONNX Runtime's manner."""

    name: str
    type: str
    shape: tuple[int, ...]


class Session:
    """A loaded placement.

    ``run`` may be called from several threads: a lock lets one run at a time, because all share one arena.
    Load the artifact once for each thread that should run at the same time. After ``close`` it cannot run.
    """

    def __init__(self, program: Program, target: Target) -> None:
        self._program = program
        self._threads = target.threads
        self._lock = threading.Lock()
        self._caller = threading.local()
        settle_pools((piece.backend for piece in program.pieces), target)
        self._buffers = allocate(plan_memory(lifetimes(program)), program.tensors)
        self._values: dict[str, Any] = {}
        """What tensors hold that are not static and so have no buffer."""
        self._executables: list[Executable] = []
        calls = []
        with workers_apart(target.threads):
            for piece in program.pieces:
                executable = _load(piece, program, target)
                self._executables.append(executable)
                calls.append(self._bound(piece, executable))
        self._regions: tuple[Callable[[], None], ...] = tuple(calls)
        self._calls: tuple[Callable[[], object], ...] = from_first_core(self._regions, target.threads)

    @property
    def program(self) -> Program:
        return self._program

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs."""
        return [self._arg(name) for name in self._program.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs."""
        return [self._arg(name) for name in self._program.outputs]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs by name (all of them for None), as arrays of the caller's own.

        Raises:
            InputError: an input is missing, unknown, or of another shape or dtype; an output is unknown.
        """
        names = list(self._program.outputs if output_names is None else output_names)
        for name in names:
            if name not in self._program.outputs:
                raise InputError(f"no output '{name}': this model gives {', '.join(self._program.outputs)}")
        with self._lock:
            if not self._executables and self._program.pieces:
                _closed()
            self.feed(feeds)
            if hasattr(self._caller, "known"):
                self.execute()
            else:
                self._first_of_thread()
            return [self.read(name) for name in names]

    def feed(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Check ``feeds`` and copy them into the session's input buffers."""
        if unknown := set(feeds) - set(self._program.inputs):
            raise InputError(f"no input '{sorted(unknown)[0]}': this model takes {', '.join(self._program.inputs)}")
        for name in self._program.inputs:
            if name not in feeds:
                raise InputError(f"input '{name}' is missing")
            if name not in self._buffers:
                self._hold(name, feeds[name])
                continue
            array, buffer = np.asarray(feeds[name]), self._buffers[name]
            if array.dtype != buffer.dtype or array.shape != buffer.shape:
                raise InputError(
                    f"input '{name}' is {array.dtype}{list(array.shape)}; "
                    f"this model takes {buffer.dtype}{list(buffer.shape)}"
                )
            np.copyto(buffer, array)

    def execute(self) -> None:
        """Run once on what ``feed`` left in the input buffers; nothing is copied or allocated here."""
        for call in self._calls:
            call()

    def read(self, name: str) -> Any:
        """What a tensor holds now, as the caller's own: an input as it was fed, an output of the last run."""
        return self._buffers[name].copy() if name in self._buffers else self._values[name]

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

    def _hold(self, name: str, value: Any) -> None:
        """Take an input whose shape is open."""
        tensor = self._program.tensors[name]
        if tensor.dtype != OPAQUE:
            value = np.ascontiguousarray(value)
            fits = len(value.shape) == len(tensor.shape) and all(
                known in (-1, size) for known, size in zip(tensor.shape, value.shape, strict=True)
            )
            if value.dtype != tensor.dtype or not fits:
                raise InputError(
                    f"input '{name}' is {value.dtype}{list(value.shape)}; "
                    f"this model takes {tensor.dtype}{list(tensor.shape)}, -1 standing for any size"
                )
        self._values[name] = value

    def _first_of_thread(self) -> None:
        """Run for a thread that has not called before: some libraries start a pool for each that calls."""
        with workers_apart(self._threads):
            self.execute()
        self._caller.known = True

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
        with self._lock:
            self._calls = self._regions = (_closed,)
            self._executables.clear()
            self._buffers, self._values = {}, {}

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arg(self, name: str) -> NodeArg:
        tensor = self._program.tensors[name]
        return NodeArg(name, tensor.dtype, tensor.shape)


def lifetimes(program: Program) -> list[Lifetime]:
    """When each static tensor is alive, in steps of the program; inputs and outputs live throughout.

    Inputs outlive their last use so that a session can run again without being fed again.
    """
    last_step = len(program.pieces)
    first: dict[str, int] = dict.fromkeys(program.inputs, -1)
    last: dict[str, int] = dict.fromkeys(program.inputs, last_step)
    for step, piece in enumerate(program.pieces):
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


def _load(piece: Piece, program: Program, target: Target) -> Executable:
    inputs = [program.tensors[name] for name in piece.inputs]
    outputs = [program.tensors[name] for name in piece.outputs]
    return get_backend(piece.backend).load(piece.directory, target, inputs, outputs)


def _closed() -> None:
    raise InputError("this session is closed: load the artifact again")
