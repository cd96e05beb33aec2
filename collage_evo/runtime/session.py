"""Runs compiled regions one after the other on one planned arena of memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from collage_evo.backends.base import Executable, Target
from collage_evo.backends.registry import get_backend
from collage_evo.errors import InputError
from collage_evo.graph.ir import Tensor
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
        self._executables: list[Executable] = []
        calls = []
        with workers_apart(target.threads):
            for piece in program.pieces:
                executable = _load(piece, program, target)
                self._executables.append(executable)
                calls.append(
                    executable.bind(
                        [self._buffers[name] for name in piece.inputs],
                        [self._buffers[name] for name in piece.outputs],
                    )
                )
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
            return [self._buffers[name].copy() for name in names]

    def feed(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Check ``feeds`` and copy them into the session's input buffers."""
        if unknown := set(feeds) - set(self._program.inputs):
            raise InputError(f"no input '{sorted(unknown)[0]}': this model takes {', '.join(self._program.inputs)}")
        for name in self._program.inputs:
            if name not in feeds:
                raise InputError(f"input '{name}' is missing")
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

    def read(self, name: str) -> np.ndarray:
        """A copy of what a tensor holds now: an input as it was fed, an output of the last run."""
        return self._buffers[name].copy()

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
            self._buffers = {}

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
    """When each tensor is alive, in steps of the program; inputs and outputs live throughout.

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
    return [Lifetime(program.tensors[name], first[name], last[name]) for name in first]


def _load(piece: Piece, program: Program, target: Target) -> Executable:
    inputs = [program.tensors[name] for name in piece.inputs]
    outputs = [program.tensors[name] for name in piece.outputs]
    return get_backend(piece.backend).load(piece.directory, target, inputs, outputs)


def _closed() -> None:
    raise InputError("this session is closed: load the artifact again")
