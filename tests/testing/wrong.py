"""A right backend, a small interpreter of elementwise models, and ones that break one promise each as they run."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from collage_evo.backends.base import YES, Backend, BuildFailure, Built, Probe, no
from collage_evo.patterns.common import CHAIN, SINGLE

OPS = {"Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Add": np.add, "Mul": np.multiply, "Sub": np.subtract}


class Right(Backend):
    name = "right"
    extra = ""

    def probe(self) -> Probe:
        return Probe(True, "1")

    def patterns(self):
        return (SINGLE, CHAIN)

    def supports_node(self, graph, node):
        plain = all(graph.tensors[name].dtype == "float32" for name in (*node.inputs, *node.outputs) if name)
        return YES if node.op_type in OPS and plain else no(f"{node.op_type} is not taken")

    def build(self, model, target, variant, workdir):
        known = {value.name for value in (*model.graph.input, *model.graph.initializer)}
        for node in model.graph.node:
            if node.op_type not in OPS or not set(node.input) <= known:
                return BuildFailure(f"cannot build {node.op_type}")
            known |= set(node.output)
        onnx.save(model, workdir / "model.onnx")
        return Built(("model.onnx",))

    def load(self, workdir, target, variant, inputs, outputs):
        return Interpreter(onnx.load(workdir / "model.onnx"))


class Interpreter:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def compute(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        given = {value.name: array for value, array in zip(self.graph.input, inputs, strict=True)}
        values = {**self.weights, **given}
        for node in self.graph.node:
            values[node.output[0]] = OPS[node.op_type](*(values[name] for name in node.input))
        return [np.array(values[value.name]) for value in self.graph.output]

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        def run() -> None:
            for array, value in zip(outputs, self.compute(inputs), strict=True):
                array[...] = value

        return run


class _Spoilt(Right):
    """Runs rightly, then calls ``spoil`` on its inputs, outputs and the object itself."""

    def load(self, workdir, target, variant, inputs, outputs):
        return SpoiltRun(super().load(workdir, target, variant, inputs, outputs), type(self).spoil)

    @staticmethod
    def spoil(run, inputs, outputs):
        raise NotImplementedError


class SpoiltRun:
    def __init__(self, loaded: Interpreter, spoil) -> None:
        self.loaded, self.spoil, self.runs = loaded, spoil, 0

    def bind(self, inputs, outputs):
        run = self.loaded.bind(inputs, outputs)

        def spoilt() -> None:
            run()
            self.runs += 1
            self.spoil(self, inputs, outputs)

        return spoilt


class Numerics(_Spoilt):
    @staticmethod
    def spoil(run, inputs, outputs):
        outputs[0][...] *= np.float32(1.01)


class Repeat(_Spoilt):
    """Right within the tolerance, but different each time."""

    @staticmethod
    def spoil(run, inputs, outputs):
        outputs[0][...] *= np.float32(1 + 2e-5 * run.runs)


class Inputs(_Spoilt):
    @staticmethod
    def spoil(run, inputs, outputs):
        inputs[0][...] = 0


class ReferenceProcess(_Spoilt):
    """Writes four bytes past the end of its output."""

    @staticmethod
    def spoil(run, inputs, outputs):
        (np.ctypeslib.ctypes.c_uint32).from_address(outputs[0].ctypes.data + outputs[0].nbytes).value = 0


class Loses(_Spoilt):
    """Has numbers in place of NaN and infinity, as fast libraries do."""

    @staticmethod
    def spoil(run, inputs, outputs):
        np.nan_to_num(outputs[0], copy=False, posinf=1.0)


class Crash(_Spoilt):
    @staticmethod
    def spoil(run, inputs, outputs):
        os.abort()


class Hang(_Spoilt):
    @staticmethod
    def spoil(run, inputs, outputs):
        time.sleep(600)


class Threads(_Spoilt):
    """Three threads work wherever one may."""

    @staticmethod
    def spoil(run, inputs, outputs):
        work = np.ones(400_000)
        run.pool = getattr(run, "pool", None) or Pool(3)
        run.pool.do(lambda: [np.sqrt(work) for _ in range(4)])


class Pool:
    """Threads that live on, as a library's do."""

    def __init__(self, count: int) -> None:
        self.begin, self.end = threading.Barrier(count + 1), threading.Barrier(count + 1)
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    def do(self, task) -> None:
        self.task = task
        self.begin.wait()
        self.end.wait()

    def _work(self) -> None:
        while True:
            self.begin.wait()
            self.task()
            self.end.wait()


class Own(Right):
    """Gives its results in memory of its own."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)
        return Bound(lambda ins, outs: lambda: loaded.compute(ins))


class Unaligned(Right):
    """Cannot use memory that is not aligned, and says nothing."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)

        def bind(ins, outs):
            seen = [array if array.ctypes.data % 64 == 0 else np.zeros_like(array) for array in ins]
            return loaded.bind(seen, outs)

        return Bound(bind)


class Fresh(Right):
    """Copies the inputs at its first run and never again."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)

        def bind(ins, outs):
            kept: list[np.ndarray] = []

            def run() -> None:
                kept[:] = kept or [array.copy() for array in ins]
                for array, value in zip(outs, loaded.compute(kept), strict=True):
                    array[...] = value

            return run

        return Bound(bind)


class Together(_Spoilt):
    """Wrong where another thread is in a run, too; who runs beside others waits for one."""

    both = threading.Barrier(2)

    @staticmethod
    def spoil(run, inputs, outputs):
        if threading.current_thread() is threading.main_thread():
            return
        with contextlib.suppress(threading.BrokenBarrierError):
            Together.both.wait(timeout=60.0)
            outputs[0][...] += 1


class Holds(Right):
    """NumPy lets other threads run while it computes; then they wait four times as long, also when it is busy."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)

        def bind(ins, outs):
            compute = loaded.bind(ins, outs)

            def run() -> None:
                begin = time.perf_counter()
                compute()
                end = begin + 5 * (time.perf_counter() - begin)
                while time.perf_counter() < end:
                    pass

            return run

        return Bound(bind)


class Instances(Right):
    """All instances of a process share the buffers of the last that was bound; memory is told apart by address."""

    last: list[np.ndarray] = []  # noqa: RUF012

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)

        def bind(ins, outs):
            Instances.last = list(ins)

            def run() -> None:
                for array, value in zip(outs, loaded.compute(Instances.last), strict=True):
                    array[...] = value

            return run

        return Bound(bind)


class LetGo(Right):
    """What is loaded computes on memory that goes with whichever instance goes first."""

    gone = False

    def load(self, workdir, target, variant, inputs, outputs):
        LetGo.gone = False
        return _Frees(super().load(workdir, target, variant, inputs, outputs))


class _Frees:
    def __init__(self, loaded: Interpreter) -> None:
        self.loaded = loaded

    def __del__(self) -> None:
        LetGo.gone = True

    def bind(self, inputs, outputs):
        run = self.loaded.bind(inputs, outputs)

        def freed() -> None:
            run()
            outputs[0][...] += np.float32(LetGo.gone)

        return freed


class Rebound(Right):
    """Computes on the inputs that it was bound to first."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)
        first: list[np.ndarray] = []

        def bind(ins, outs):
            first[:] = first or ins
            return loaded.bind(first, outs)

        return Bound(bind)


class Bound:
    def __init__(self, bind) -> None:
        self.bind = bind
