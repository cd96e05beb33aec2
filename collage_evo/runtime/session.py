"""What a person runs: takes the programs of an artifact, answers as ``onnxruntime.InferenceSession`` does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from collage_evo.backends.base import Target
from collage_evo.backends.capabilities import HasExecutionProvider
from collage_evo.backends.registry import device_of, get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.devices.device import Device, DeviceArray
from collage_evo.devices.open import open_device
from collage_evo.errors import InputError
from collage_evo.graph.ir import OPAQUE
from collage_evo.runtime.binding import IOBinding, as_ort_value
from collage_evo.runtime.device_arrays import as_device_array
from collage_evo.runtime.device_work import exclusive
from collage_evo.runtime.forks import LINEAGE
from collage_evo.runtime.pools import settle_pools
from collage_evo.runtime.program import Piece, Program
from collage_evo.runtime.runner import Loader, Runner, as_value, closed, written
from collage_evo.runtime.signature import ModelMetadata, NodeArg, Signature, signature_of_program
from collage_evo.target.target import CPU

_NO_PROVIDER = {"cuda": "CUDAExecutionProvider"}
"""What code that asks where a model runs looks for, where a library on that device is no provider itself."""


@dataclass(frozen=True)
class SessionOptions:
    """What ``onnxruntime.SessionOptions`` has that is true of a session: its threads; nothing of it can be set."""

    intra_op_num_threads: int
    inter_op_num_threads: int = 1
    enable_profiling: bool = False


class Session:
    """Loaded placements of one model, one for each profile of input shapes; the inputs' shapes say which one runs.

    Any other shapes run in the fall-back, one backend that takes them as they come, which is loaded when it is first
    needed. ``run`` may be called from several threads: a lock lets one run at a time, because all share one arena.
    Load the artifact once for each thread that should run at the same time. After ``close`` it cannot run.

    Args:
        programs: one for each profile, equal in the names of their inputs and outputs.
        target: what they were compiled for.
        signature: what the model's own file declares; by default what the programs tell.
        fallback: a program that takes shapes of no profile.
        load: gives the programs' pieces, for who keeps them loaded; by default their backends load them.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        target: Target,
        signature: Signature | None = None,
        fallback: Program | None = None,
        load: Loader | None = None,
    ) -> None:
        first = programs[0]
        self._programs = (*programs, *([fallback] if fallback else []))
        self._inputs, self._outputs = first.inputs, first.outputs
        self._tensors = {name: first.tensors[name] for name in first.inputs}
        self._signature = signature or signature_of_program(first)
        self._target = target
        self._lock = threading.Lock()
        self._runs_in: int | None = None
        """The thread that holds the lock."""
        settle_pools((piece.backend for program in programs for piece in program.pieces), target)
        self._runners = {program.shapes: Runner(program, target, load) for program in programs}
        self._fallback = fallback
        self._open: Runner | None = None
        self._current = next(iter(self._runners.values()))
        static = all(tensor.static for tensor in self._tensors.values())
        self._only = self._current if static and fallback is None and len(self._runners) == 1 else None
        """The runner of all requests, where there is one: it says itself which shapes do not fit."""
        self._closed = False
        LINEAGE.register(self)

    def __repr__(self) -> str:
        takes = ", ".join(f"{one.name} {one.type}{one.shape}" for one in self._signature.inputs)
        runs = " + ".join(dict.fromkeys(engine_name(piece.backend, piece.variant) for piece in self.program.pieces))
        name = self._signature.meta.graph_name or "a model"
        return f"<Session of {name}: {takes} -> {', '.join(self._outputs)}; {runs}>"

    @property
    def program(self) -> Program:
        """The program that runs: the first profile's until inputs of other shapes were fed."""
        return self._current.program

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are compiled in, also those that the file lists as inputs."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model's file says of itself."""
        return self._signature.meta

    def get_providers(self) -> list[str]:
        """What runs the programs, first the first profile's: each library by its name as ONNX Runtime's provider.

        One that is no such provider goes by its own name, as ``tvm``; on a GPU by ``CUDAExecutionProvider``.
        """
        return list(dict.fromkeys(_provider(piece) for program in self._programs for piece in program.pieces))

    def get_session_options(self) -> SessionOptions:
        """The threads that the artifact was made for."""
        return SessionOptions(self._target.threads)

    def end_profiling(self) -> str:
        """
        Raises:
            InputError: always; libraries here write no profile of ONNX Runtime's kind.
        """
        raise InputError("no profile is written here: profile() gives the milliseconds of each piece")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """Outputs by name (all of them for None or an empty list), as arrays of the caller's own.

        Args:
            output_names: which outputs, in the order wanted.
            input_feed: an array, or a list, for each input.
            run_options: taken for ONNX Runtime's sake, and not used.

        Raises:
            InputError: an input is missing, unknown, or of a shape or dtype that the model does not take; an output
                is unknown.
        """
        names = list(output_names or self._outputs)
        for name in names:
            if name not in self._outputs:
                raise InputError(f"no output '{name}': this model gives {', '.join(self._outputs)}")
        values = self._values(input_feed)  # converting a tensor may run anything, this session too
        self._require_not_inside()
        with self._lock:
            self._runs_in = threading.get_ident()
            try:
                self._feed(values)
                self._current.execute_here()
                return self._current.hand_over(names)
            finally:
                self._current.forget()  # a server that waits would hold the last answer in memory
                self._runs_in = None

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """As ``run``, with each input and output an ``onnxruntime.OrtValue`` of the host; all are copied.

        Raises:
            InputError: as ``run``; or an output is no tensor.
        """
        names = list(output_names or self._outputs)
        return list(map(as_ort_value, names, self.run(names, input_dict_ort_values)))

    def io_binding(self) -> IOBinding:
        """Inputs and outputs of this session that can be bound to memory of the host."""
        return IOBinding(self._inputs, self._outputs)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run on the inputs that are bound, and write to the outputs that are; errors as :meth:`IOBinding.fill`."""
        iobinding.fill(self.run)

    def feed(self, feeds: Mapping[str, Any]) -> None:
        """Choose the program for the shapes of ``feeds``, and copy them into its input buffers."""
        self._feed(self._values(feeds))

    def _values(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        self._require_names(feeds)
        return {name: as_value(feeds[name], self._tensors[name]) for name in self._inputs}

    def _feed(self, values: Mapping[str, Any]) -> None:
        if self._closed:
            closed()
        runner = self._runner(values)
        runner.feed(values)
        self._current = runner

    def _require_not_inside(self) -> None:
        """Require that this thread is not inside of a run, from which a signal handler or the like asks for another.

        Raises:
            InputError: it is; waiting for the end of that run it would wait for ever.
        """
        if self._runs_in == threading.get_ident():
            raise InputError("this session is at work in this thread already: use another session there")

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """The session to this thread alone. Raises as :meth:`_require_not_inside`."""
        self._require_not_inside()
        with self._lock:
            self._runs_in = threading.get_ident()
            try:
                yield
            finally:
                self._runs_in = None

    def run_on_device(self, feeds: Mapping[str, Any]) -> dict[str, DeviceArray]:
        """Outputs by name on the target's device, as arrays of the caller's own, for inputs that lie there.

        Nothing goes by way of the host but what a piece there needs. All has run when it returns.

        Args:
            feeds: for each input an array on the device: a ``DeviceArray``, or any with ``__dlpack__``, such as a
                tensor of PyTorch. It must stay as it is until this returns.

        Raises:
            InputError: as ``run``; or the artifact was made for the CPU; or an input lies elsewhere.
            UnavailableError: the device is not there.
        """
        if self._target.device == CPU:
            raise InputError("this artifact was made for the CPU: call run")
        with self._running():
            self._require_names(feeds)
            device = open_device(self._target.device)
            with exclusive(device):  # who gives an array has our stream wait for it: in no capture of another thread
                given = {name: as_device_array(name, feeds[name], device.stream) for name in self._inputs}
                self._current = self._runner(given)
                return self._current.run_on_device(device, given)

    def execute(self) -> None:
        """Run once on what ``feed`` left in the input buffers; nothing is copied or allocated here.

        Where a device takes part: inputs and outputs are copied to it and from it, and all has run at the end.
        """
        self._current.execute()

    def read(self, name: str) -> Any:
        """What a tensor holds now, as the caller's own: an input as it was fed, an output of the last run.

        ``run`` gives outputs of open shapes away: then only ``execute`` leaves something to read.

        Raises:
            InputError: it holds nothing, there is no such tensor, or the session is closed.
        """
        return self._current.read(name)

    def copies(self, name: str) -> tuple[Any, ...]:
        """What a tensor holds now in each memory where it lies, as the caller's own."""
        return self._current.copies(name)

    def profile(self) -> list[float]:
        """Milliseconds of each piece in one run on the inputs that were fed last."""
        return self._current.profile()

    @property
    def device(self) -> Device | None:
        """The device that has part in the program that runs; None if it is the host's alone."""
        return self._current.device

    def time_device_ms(self, flush_bytes: int = 0) -> float:
        """Milliseconds by the device's events of a run on the inputs that were fed last, without copies of these and
        of the outputs. ``flush_bytes`` are written before, so that weights are cold and inputs warm.

        Raises:
            InputError: no piece runs on a device.
        """
        return self._current.time_device_ms(flush_bytes)

    @property
    def raced_ms(self) -> tuple[float, float] | None:
        """:attr:`Runner.raced_ms` of the program that ran last."""
        return self._current.raced_ms

    @property
    def notes(self) -> tuple[str, ...]:
        """What does not run as well as it might, and why; of each program all is known after its first run."""
        return tuple(dict.fromkeys(note for runner in self._runners.values() for note in runner.notes))

    def forked(self) -> None:
        """Nobody in this process holds the lock, whoever held it in the one before."""
        self._lock, self._runs_in = threading.Lock(), None

    def close(self) -> None:
        """Let go of all compiled regions and buffers."""
        with self._running():
            self._closed = True
            for runner in (*self._runners.values(), *([self._open] if self._open else [])):
                runner.close()
            self._runners, self._open, self._fallback = {}, None, None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_names(self, feeds: Mapping[str, Any]) -> None:
        if self._closed:
            closed()
        if unknown := set(feeds) - set(self._inputs):
            if fixed := sorted(unknown.intersection(self._signature.compiled_in)):
                raise InputError(
                    f"input '{fixed[0]}' has a value in the model's file, which is compiled in: to feed it, take "
                    "that initializer out of the file and search again"
                )
            raise InputError(f"no input '{sorted(unknown)[0]}': this model takes {', '.join(self._inputs)}")
        for name in self._inputs:
            if name not in feeds:
                raise InputError(f"input '{name}' is missing")

    def _runner(self, values: Mapping[str, Any]) -> Runner:
        if self._only is not None and not self._closed:
            return self._only
        shapes = tuple(
            values[name].shape if tensor.static else None for name, tensor in self._tensors.items()
        )
        found = self._runners.get(shapes)
        if found is None or None in shapes:
            self._signature.require_agreement(values)
        if found is not None:
            return found
        if self._fallback is None:
            if len(self._runners) == 1:
                return self._current  # which says what does not fit
            arrays = (name for name, tensor in self._tensors.items() if tensor.dtype != OPAQUE)
            given = ", ".join(f"{name} {written(values[name])}" for name in arrays)
            raise InputError(f"no profile of this artifact takes {given}: add it to model.shapes and run again")
        if self._open is None:
            self._open = Runner(self._fallback, self._target)
        return self._open


def _provider(piece: Piece) -> str:
    """What :meth:`Session.get_providers` calls the library of ``piece``."""
    backend, device = get_backend(piece.backend), device_of(piece.backend, piece.variant)
    known = backend.execution_providers if isinstance(backend, HasExecutionProvider) else _NO_PROVIDER
    return known.get(device, piece.backend)
