"""Inference sessions of an artifact, with the interface of ``onnxruntime.InferenceSession``."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from collage_evo.backends.base import Target
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import OPAQUE
from collage_evo.runtime.binding import IOBinding, as_ort_value
from collage_evo.runtime.forks import LINEAGE
from collage_evo.runtime.input_shapes import written
from collage_evo.runtime.package import Selected
from collage_evo.runtime.pools import settle_pools
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import Loader, Runner, as_value, closed, runner_of
from collage_evo.runtime.signature import ModelMetadata, NodeArg, Signature, signature_of_program
from collage_evo.runtime.timing import Clock

__all__ = ["Session", "SessionOptions"]
RECENT = 1024
"""Shapes of requests that a session remembers as fitting."""


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class SessionOptions:
    """The applicable part of ``onnxruntime.SessionOptions``: the threads, read-only."""

    intra_op_num_threads: int
    inter_op_num_threads: int = 1
    enable_profiling: bool = False


class Session(contextlib.AbstractContextManager["Session"]):
    """Loaded placements of one model, one for each profile of input shapes; the inputs' shapes choose the placement.

    Any other shapes run in the fallback, a single backend that takes any, which is loaded on first use. ``run`` may
    be called from several threads: a lock lets one run at a time, because all share one arena. Load the artifact once
    for each thread that should run at the same time. After ``close`` it cannot run.

    Some libraries do not refuse shapes that the model cannot take. Of a program with such pieces for inputs of open
    shapes, the fallback runs the first request of each shape before the program does, and raises for one that it
    cannot take. It alone runs all with a size below ``least``: where a window is larger than its input, such
    libraries leave the output of another run. Without a fallback the caller has to know that the model takes the
    shapes.

    Args:
        programs: one for each profile, with equal names of inputs and outputs.
        target: that they were compiled for.
        signature: of the model's own file; by default that of the programs.
        fallback: a program that takes shapes of no profile.
        load: returns the programs' pieces, for callers that cache them; by default their backends load them.
        least: shapes by input that programs for open shapes were checked on.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        target: Target,
        signature: Signature | None = None,
        fallback: Program | None = None,
        load: Loader | None = None,
        least: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        first = programs[0]
        self._programs = (*programs, *([fallback] if fallback else []))
        self._inputs, self._outputs = first.inputs, first.outputs
        self._tensors = {name: first.tensors[name] for name in first.inputs}
        self._input_names = frozenset(first.inputs)
        self._order, self._types = list(first.inputs), [np.ndarray] * len(first.inputs)
        self._signature = signature or signature_of_program(first)
        self._target = target
        self.selected: Selected | None = None
        """Which artifact of a package this is, and why; None where the artifact is no part of one."""
        self._lock = threading.RLock()
        """A signal handler may interrupt its owner at any moment, and runs in the same thread."""
        self._inside = False
        """Whether the thread that holds the lock is inside a run."""
        settle_pools((piece.backend for program in programs for piece in program.pieces), target)
        self._runners = {program.shapes: runner_of(program, target, self._signature, load) for program in programs}
        self._fallback = fallback.late if fallback else None
        self._least = [least.get(name, [1] * len(tensor.shape)) for name, tensor in self._tensors.items()]
        self._open: Runner | None = None
        self._current = next(iter(self._runners.values()))
        self._only = self._current if fallback is None and len(self._runners) == 1 else None
        """The only runner, where there is one: its own errors name shapes that do not fit."""
        self._all_arrays = all(tensor.dtype != OPAQUE for tensor in self._tensors.values())
        self._recent: dict[Any, Runner] = {}
        """The runner for shapes and dtypes that were fed, where all inputs are arrays."""
        self._closed = False
        LINEAGE.register(self)

    def __repr__(self) -> str:
        takes = ", ".join(f"{one.name} {one.type}{one.shape}" for one in self._signature.inputs)
        runs = " + ".join(dict.fromkeys(engine_name(piece.backend, piece.variant) for piece in self.program.pieces))
        name = self._signature.meta.graph_name or "a model"
        return f"<Session of {name}: {takes} -> {', '.join(self._outputs)}; {runs}>"

    @property
    def program(self) -> Program:
        """The current program: the first profile's until inputs of other shapes are fed."""
        return self._current.program

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """An empty list: weights are compiled in, also those that the file lists as inputs."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model's file."""
        return self._signature.meta

    def get_providers(self) -> list[str]:
        """The libraries of the programs, beginning with the first profile's, as names of ONNX Runtime's providers.

        One that is no such provider has its own name, as ``tvm``.
        """
        return list(dict.fromkeys(_provider(piece) for program in self._programs for piece in program.pieces))

    def get_session_options(self) -> SessionOptions:
        """The threads that the artifact was made for."""
        return SessionOptions(self._target.threads)

    def end_profiling(self) -> str:
        """
        Raises:
            InputError: always; these libraries write no profile of ONNX Runtime's kind.
        """
        raise InputError("a session writes no profile file: call profile() for the milliseconds of each piece")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """The outputs in ``output_names`` (all of them for None or an empty list), as arrays that the caller owns.

        Args:
            output_names: in the order of the result.
            input_feed: an array, or a list, for each input.
            run_options: taken for ONNX Runtime's sake, and not used.

        Raises:
            InputError: an input is missing, unknown, or of a shape or dtype that the model does not take; an output
                is unknown.
        """
        names = self._names(output_names)
        values = self._values(input_feed)  # converting a tensor may run arbitrary code, this session too
        with self._lock:
            self._require_outside()
            try:
                self._inside = True
                self._feed(values)
                self._current.execute_here()
                return self._current.hand_over(names)
            finally:
                try:
                    self._current.forget()  # a waiting server would hold the last request and answer in memory
                finally:
                    self._inside = False

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """:meth:`run` with each input and output an ``onnxruntime.OrtValue`` of the host; all are copied.

        Raises:
            InputError: as ``run``; or an output is no tensor.
        """
        names = self._names(output_names)
        return list(map(as_ort_value, names, self.run(names, input_dict_ort_values)))

    def io_binding(self) -> IOBinding:
        """A new binding of this session's inputs and outputs to memory of the host."""
        return IOBinding(self._inputs, self._outputs)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run on the bound inputs, and write to the bound outputs.

        Raises:
            InputError: as :meth:`IOBinding.fill`; or it is no binding of a session like this one.
        """
        if not isinstance(iobinding, IOBinding):
            raise InputError(f"{type(iobinding).__name__} is no binding of this session: call io_binding")
        iobinding.fill(self.run)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Choose the program for the shapes of ``feeds``, and copy them into its input buffers.

        Inputs of open shapes have no buffer: the session holds these until the next ``feed``. Where the fallback has
        to run shapes first, it does so here.
        """
        self._feed(self._values(feeds))
        self._current.hold()

    def _names(self, output_names: Sequence[str] | None) -> list[str]:
        """All outputs for None or an empty list."""
        if output_names is None:
            return list(self._outputs)
        if isinstance(output_names, str) or not isinstance(output_names, Iterable):
            raise InputError("the outputs to give are no list of names: give a list, or None for all")
        names = list(output_names) or list(self._outputs)
        for name in names:
            if not isinstance(name, str) or name not in self._outputs:
                raise InputError(f"no output '{name}': this model gives {', '.join(self._outputs)}")
        return names

    def _values(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs in the programs' order."""
        usual = type(feeds) is dict and [*(values := feeds.copy())] == self._order
        if usual and [*map(type, values.values())] == self._types:
            return values
        if type(feeds) is not dict or feeds.keys() != self._input_names:
            self._require_names(feeds)
        return {
            name: value if type(value := feeds[name]) is np.ndarray else as_value(value, tensor)
            for name, tensor in self._tensors.items()
        }

    def _feed(self, values: Mapping[str, Any]) -> None:
        if self._closed:
            closed()
        kinds = self._all_arrays and tuple([(value.shape, value.dtype) for value in values.values()])
        runner = self._recent.get(kinds)
        if runner is None:
            runner = self._runner(values)
            runner.takes.require(values)
            if runner.needs_proof and self._fallback:
                fallback = self._loaded_fallback()
                if kinds and all(map(_reaches, values.values(), self._least)):
                    fallback.prove(values)
                else:
                    runner, kinds = fallback, False
            if len(self._recent) == RECENT:
                self._recent.clear()
            if kinds:
                self._recent[kinds] = runner
        runner.feed(values)
        self._current = runner

    def _require_outside(self) -> None:
        """Require that this thread, which holds the lock, is not inside a run, from which a signal handler starts
        another.

        Raises:
            InputError: it is; that run's buffers are in use.
        """
        if self._inside:
            raise InputError("this session is running in this thread already: use another session")

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Exclusive use of the session by this thread. Raises as :meth:`_require_outside`."""
        with self._lock:
            self._require_outside()
            try:
                self._inside = True
                yield
            finally:
                self._inside = False

    def run_on_device(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name as arrays on the target's device that the caller owns, for inputs on it.

        Only tensors that a host piece needs go through the host. All work has run on return.

        Args:
            feeds: for each input an array on the device: any with ``__dlpack__``, such as a tensor of PyTorch. It
                must not change until this returns.

        Raises:
            InputError: as ``run``; or the artifact was made for the CPU; or an input is on another device.
            UnavailableError: the device is not there.
        """
        if not self._target.accelerated:
            raise InputError("this artifact was made for the CPU: call run")
        with self._running():
            self._require_names(feeds)
            inputs = {name: feeds[name] for name in self._inputs}
            with self._target.served_by.borrowed(inputs) as arrays:
                self._current = self._runner(arrays)
                return self._current.run_there(arrays)

    def execute(self) -> None:
        """Run once on the input buffers that ``feed`` filled; nothing is copied or allocated here.

        With an accelerator, inputs and outputs are copied to it and from it, and all work has run on return.

        Raises:
            InputError: an input has an open shape, and ``feed`` was not called.
        """
        self._current.execute()

    def read(self, name: str) -> Any:
        """The present value of a tensor, owned by the caller: a fed input, or an output of the last run.

        ``run`` does not retain outputs of open shapes: only ``execute`` leaves them to read.

        Raises:
            InputError: it has no value, there is no such tensor, or the session is closed.
        """
        return self._current.read(name)

    def copies(self, name: str) -> tuple[Any, ...]:
        """The present value of a tensor in each memory that has it, owned by the caller; an input of open shape is in
        none of the session's."""
        return self._current.copies(name)

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the last fed inputs.

        Raises:
            InputError: as ``execute``.
        """
        return self._current.profile()

    def spans(self) -> list[tuple[float, float]]:
        """Beginning and duration of each piece in one run on the last fed inputs, in microseconds of
        ``time.perf_counter``.

        Raises:
            InputError: as ``execute``; or an accelerator takes part, which works on after a call.
        """
        if self.clock is not None:
            raise InputError("a timeline is of pieces on the host: profile() times those of an accelerator")
        return self._current.spans()

    @property
    def clock(self) -> Clock | None:
        """The clock of the accelerator that the current program uses; None if all pieces run on the host."""
        return self._current.clock

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on work that runs worse than it could, with reasons; complete after each program's first run."""
        return tuple(dict.fromkeys(note for runner in self._runners.values() for note in runner.notes))

    def forked(self) -> None:
        """Reset the lock: no thread of this process holds it, whichever held it in the parent."""
        self._lock, self._inside = threading.RLock(), False

    def close(self) -> None:
        """Release all compiled regions and buffers."""
        with self._running():
            self._closed = True
            for runner in (*self._runners.values(), *([self._open] if self._open else [])):
                runner.close()
            self._runners, self._recent, self._open, self._fallback = {}, {}, None, None

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _require_names(self, feeds: Mapping[str, Any]) -> None:
        if self._closed:
            closed()
        if not isinstance(feeds, (dict, Mapping)):
            raise InputError(f"inputs are no dictionary: give an array for each of {', '.join(self._inputs)}")
        if unknown := set(feeds) - self._input_names:
            if fixed := sorted(unknown.intersection(self._signature.compiled_in)):
                raise InputError(
                    f"input '{fixed[0]}' has a value in the model's file, which is compiled in: to feed it, take "
                    "that initializer out of the file and search again"
                )
            raise InputError(f"no input '{min(unknown, key=str)}': this model takes {', '.join(self._inputs)}")
        for name in self._inputs:
            if name not in feeds:
                raise InputError(f"input '{name}' is missing")

    def _runner(self, values: Mapping[str, Any]) -> Runner:
        if self._only is not None and not self._closed:
            return self._only
        shapes = tuple(
            values[name].shape if tensor.static else None for name, tensor in self._tensors.items()
        )
        if (runner := self._runners.get(shapes)) is not None:
            return runner
        if self._fallback is None:
            arrays = (name for name, tensor in self._tensors.items() if tensor.dtype != OPAQUE)
            shapes_text = ", ".join(f"{name} {written(values[name])}" for name in arrays)
            raise InputError(f"no profile of this artifact takes {shapes_text}: add it to model.shapes and run again")
        return self._loaded_fallback()

    def _loaded_fallback(self) -> Runner:
        if self._open is None:
            assert self._fallback is not None
            self._open = runner_of(self._fallback, self._target, self._signature)
        return self._open


def _reaches(value: np.ndarray, least: Sequence[int]) -> bool:
    """Whether no size of ``value`` is below that in ``least``."""
    return all(map(operator.ge, value.shape, least))


def _provider(piece: Piece) -> str:
    """The name of the library of ``piece`` in :meth:`Session.get_providers`."""
    backend, device = get_backend(piece.backend), device_of(piece.backend, piece.variant)
    return backend.execution_providers.get(device, piece.backend)
