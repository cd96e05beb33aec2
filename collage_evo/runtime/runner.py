"""Runner of one program: calls its pieces in order on planned memory."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from collage_evo.backends.base import DynamicExecutable, Executable, Target
from collage_evo.backends.capabilities import StandsOnOthers, refuses_shapes
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.errors import CannotLoad, CollageError, InputError, UnavailableError, named_line, one_line
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.graph.ir.memory import allocate, plan_memory
from collage_evo.graph.reference.ort_values import from_ort_value
from collage_evo.runtime.checked import load_unchanged
from collage_evo.runtime.fit import why_refused
from collage_evo.runtime.forks import LINEAGE, left_behind, never_free
from collage_evo.runtime.input_limits import MaskedValues, plain_array
from collage_evo.runtime.input_shapes import InputShapes, written
from collage_evo.runtime.limits import require_inside, reraise_index_error
from collage_evo.runtime.pages import on_huge_pages
from collage_evo.runtime.pools import from_first_core, workers_apart
from collage_evo.runtime.program import Piece, Program, lifetimes
from collage_evo.runtime.signature import Signature
from collage_evo.runtime.timing import Clock

Loader = Callable[[Piece, Program, Target], Executable]
"""Loads a piece of a program, or returns it from a cache."""


class Runner:
    """A loaded program, with pieces from ``load``, of a model with ``signature``. For one thread at a time."""

    def __init__(self, program: Program, target: Target, signature: Signature, load: Loader | None = None) -> None:
        self.program = program
        self.takes = InputShapes(program, signature)
        self.needs_proof = needs_proof(program)
        self._load = load or load_piece
        self._threads = target.threads
        waiting = {name for piece in program.pieces if (name := _waits_after_fork(piece, target.threads))}
        LINEAGE.use(waiting)
        self._forks = not waiting
        self._caller = threading.local()
        self._buffers: dict[str, np.ndarray] = {}
        self._values: dict[str, Any] = {}
        """Values of tensors without a buffer."""
        self._held: dict[str, Any] = {}
        """Those that stay after a run."""
        self._executables: list[Executable] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(on_huge_pages())
            stack.enter_context(workers_apart(target.threads))
            self._regions = self.load_pieces(target)
        self._inputs = [
            (tensor.name, None if tensor.dtype == OPAQUE else np.dtype(tensor.dtype), self._buffers.get(tensor.name))
            for tensor in map(program.tensors.__getitem__, program.inputs)
        ]
        self._calls: tuple[Callable[[], object], ...] = from_first_core(self.steps(), target.threads)
        LINEAGE.register(self)

    def load_pieces(self, target: Target) -> tuple[Callable[[], None], ...]:
        """Allocate buffers, and load and bind all pieces, each of which is a call then."""
        self.allocate(_handed_over(self.program))
        return tuple(self.loaded(piece, target) for piece in self.program.pieces)

    def allocate(self, handed_over: Collection[str] = ()) -> None:
        """Make buffers of the program's tensors in the host's memory, except those that libraries allocate."""
        lives = [life for life in lifetimes(self.program) if life.name not in handed_over]
        self._buffers = allocate(plan_memory(lives), self.program.tensors)

    def steps(self) -> tuple[Callable[[], None], ...]:
        """The calls of a run in order."""
        return self._regions

    @property
    def clock(self) -> Clock | None:
        """The clock of the accelerator that takes part; None if all pieces run on the host."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on work that runs worse than it could, with reasons; complete after the first run."""
        return ()

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Copy every input, which fits, into the buffers.

        Inputs with limits are copied before the check: the caller's array may change until the run reads it. A
        refused request does not change the buffers.

        Raises:
            InputError: an index is outside the tensor that it indexes.
        """
        if self.program.limits:
            feeds = {**feeds, **{name: np.array(feeds[name]) for name in self.program.limits}}
            require_inside(feeds, self.program.limits)
        values = self._values
        for name, dtype, buffer in self._inputs:
            if buffer is not None:
                np.copyto(buffer, feeds[name])
            else:
                values[name] = feeds[name] if dtype is None else np.asarray(feeds[name], dtype, "C")

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

    def prove(self, feeds: Mapping[str, Any]) -> None:
        """Run once on ``feeds`` for the errors alone: what serves a request does not depend on earlier ones.

        Raises:
            InputError: the model cannot take these shapes, or one of the values.
        """
        try:
            self.feed(feeds)
            self.execute_here()
        finally:
            self.forget()

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
        values, fed = self._values, self.program.inputs
        # The caller may have it already: an input, or an output that is named twice.
        return [
            values[name] if name in values and name not in fed and names.count(name) == 1 else self.read(name)
            for name in names
        ]

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
        return (self.read(name),)

    def run_there(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name as arrays in an accelerator's memory, for inputs there."""
        raise NotImplementedError

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the last fed inputs."""
        return [us / 1e3 for _, us in self.spans()]

    def spans(self) -> list[tuple[float, float]]:
        """When each piece began in one run on the last fed inputs, and how long it took: microseconds of
        ``time.perf_counter``. For pieces on the host."""
        spans = []
        for call in self._regions:
            start = time.perf_counter()
            call()
            spans.append((start * 1e6, (time.perf_counter() - start) * 1e6))
        return spans

    def forked(self) -> None:
        """Refuse runs that would wait forever in a forked process, and do not free objects that would."""
        if self._threads > 1:
            never_free(self._executables, self._regions, self._calls)
            self._executables = []
        if not self._forks:
            self._calls = self._regions = (left_behind,)

    def close(self) -> None:
        """Release all compiled regions and buffers."""
        self._calls = self._regions = (closed,)
        self._executables.clear()
        self._buffers, self._values, self._held, self._inputs = {}, {}, {}, []

    def loaded(self, piece: Piece, target: Target) -> Callable[[], None]:
        """A call of ``piece``, loaded and bound to its buffers."""
        try:
            def load() -> tuple[Executable, Callable[[], None]]:
                executable = self._load(piece, self.program, target)
                return executable, self.bound(piece, executable)

            executable, bound = load_unchanged(piece.files, load)
            self._executables.append(executable)
            return bound
        except CollageError:
            raise
        except Exception as error:  # a library may raise anything for a corrupt file, or one for other instructions
            text = f"{piece.backend} cannot load a region ({named_line(error)})"
            has_other_cause = target.accelerated or isinstance(error, MemoryError | OSError)
            if not has_other_cause and (why := why_refused(target.machine)):
                raise UnavailableError(f"{text}: {why}") from error
            raise CannotLoad(f"{text}: run the search again") from error

    def bound(self, piece: Piece, executable: Executable) -> Callable[[], None]:
        """A call of ``executable`` on the buffers of ``piece``."""
        name, buffers = engine_name(piece.backend, piece.variant), self._buffers
        if all(tensor in buffers for tensor in (*piece.inputs, *piece.outputs)):
            return executable.bind([buffers[n] for n in piece.inputs], [buffers[n] for n in piece.outputs])
        if not isinstance(executable, DynamicExecutable):
            raise InputError(f"{name} runs no piece with open shapes: run the search again")
        return partial(self._run_open, piece, executable, [(n, buffers.get(n)) for n in piece.inputs])

    def _run_open(
        self, piece: Piece, executable: DynamicExecutable, inputs_from: Sequence[tuple[str, np.ndarray | None]]
    ) -> None:
        """Run a piece whose tensors are not all static: the library allocates its outputs.

        ``inputs_from``: each input with its buffer, None for one that has none.
        """
        values, buffers = self._values, self._buffers
        try:
            inputs = [values[name] if buffer is None else buffer for name, buffer in inputs_from]
        except KeyError as missing:
            raise InputError(f"{missing} holds nothing: call feed before") from None
        try:
            outputs = executable.run(inputs)
        except Exception as error:  # each library has its own for shapes and values that an operator refuses
            raise InputError(f"{piece.backend} cannot run the model on these inputs: {one_line(error)}") from error
        for name, value in zip(piece.outputs, outputs, strict=True):
            if name not in buffers:
                values[name] = value
            elif value.shape == buffers[name].shape:
                np.copyto(buffers[name], value)
            else:  # which copying might broadcast
                raise InputError(f"{piece.backend} made {name!r} of {written(value)} for {buffers[name].shape}")


def _handed_over(program: Program) -> set[str]:
    """Static tensors that pieces with open shapes make and no other piece reads: in a buffer they would be a copy."""
    pieces = [
        (piece, all(program.tensors[name].static for name in (*piece.inputs, *piece.outputs)))
        for piece in program.pieces
    ]
    outputs = {name for piece, static in pieces if not static for name in piece.outputs}
    return outputs.difference(name for piece, static in pieces if static for name in piece.inputs)


def needs_proof(program: Program) -> bool:
    """Whether a piece with open inputs would not refuse shapes that it cannot take: another library has to run each
    shape before it."""
    return any(
        not refuses_shapes(get_backend(piece.backend))
        and not all(program.tensors[name].static for name in piece.inputs)
        for piece in program.pieces
    )


def runner_of(program: Program, target: Target, signature: Signature, load: Loader | None = None) -> Runner:
    """A runner of ``program`` for ``target``, of a model with ``signature``; pieces come from ``load``, or from their
    backends."""
    kind: type[Runner] = target.served_by.runner() if target.accelerated else Runner
    return kind(program, target, signature, load)


def as_value(value: Any, tensor: Tensor) -> Any:
    """``value`` as ONNX Runtime would read it: a list gets the model's type, an array retains its own."""
    if type(value) is np.ndarray or tensor.dtype == OPAQUE:
        return value
    numpy = None if isinstance(value, np.ndarray) else getattr(value, "numpy", None)  # as of a PyTorch tensor
    if hasattr(value, "data_type"):  # an OrtValue, also of a type that NumPy lacks
        numpy = partial(from_ort_value, value)
    try:
        return plain_array(numpy() if callable(numpy) else value, tensor.dtype if isinstance(value, list) else None)
    except MaskedValues as error:
        raise InputError(f"input '{tensor.name}' {error}") from error
    except CollageError:
        raise
    except Exception as error:  # conversion may run anybody's code
        raise InputError(f"input '{tensor.name}' is no array: {one_line(error)}") from error


def closed() -> None:
    """Refuse to run: the session is closed.

    Raises:
        InputError: always.
    """
    raise InputError("this session is closed: load the artifact again")


def _waits_after_fork(piece: Piece, threads: int) -> str:
    """The backend for whose threads the piece would wait in a forked process; empty if there is none."""
    backend = get_backend(piece.backend)
    variant = backend.variant(piece.variant)
    if backend.runs_on_after_fork(variant, threads):
        return ""
    return backend.stands_on(variant)[0] if isinstance(backend, StandsOnOthers) else backend.name


def load_piece(piece: Piece, program: Program, target: Target) -> Executable:
    """``piece``, loaded by its backend, ready to be bound."""
    inputs, outputs = ([program.tensors[name] for name in names] for names in (piece.inputs, piece.outputs))
    backend = get_backend(piece.backend)
    return backend.load(piece.directory, target, backend.variant(piece.variant), inputs, outputs)
