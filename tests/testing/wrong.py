"""A right backend, a small interpreter of elementwise models, and ones that break one promise each as they run."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
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


class Bound:
    def __init__(self, bind) -> None:
        self.bind = bind


class _Binds(Right):
    """Binds what is loaded as ``bound`` of its class does."""

    def load(self, workdir, target, variant, inputs, outputs):
        loaded = super().load(workdir, target, variant, inputs, outputs)
        loaded.runs = 0
        return Bound(lambda ins, outs: self.bound(loaded, ins, outs))


class _Spoilt(_Binds):
    """Runs rightly, then calls ``spoil`` on the number of runs, its inputs and outputs."""

    def bound(self, loaded, inputs, outputs):
        run = loaded.bind(inputs, outputs)

        def spoilt() -> None:
            run()
            loaded.runs += 1
            type(self).spoil(loaded.runs, inputs, outputs)

        return spoilt


def spoilt(name: str, spoil: Callable[..., object]) -> type[Right]:
    return type(name, (_Spoilt,), {"spoil": staticmethod(spoil), "__module__": __name__})


def past_the_end(runs, inputs, outputs) -> None:
    np.ctypeslib.ctypes.c_uint32.from_address(outputs[0].ctypes.data + outputs[0].nbytes).value = 0


def on_three_threads(runs, inputs, outputs) -> None:
    Pool.the = Pool.the or Pool(3)
    Pool.the.do(lambda: [np.sqrt(np.ones(400_000)) for _ in range(4)])


def beside_another(runs, inputs, outputs) -> None:
    """Wrong where another thread is in a run, too; who runs beside others waits for one."""
    if threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(threading.BrokenBarrierError):
            BOTH.wait(timeout=60.0)
            outputs[0][...] += 1


def times(outputs, factor: float) -> None:
    outputs[0][...] *= np.float32(factor)


BOTH = threading.Barrier(2)
Numerics = spoilt("Numerics", lambda runs, ins, outs: times(outs, 1.01))
Repeat = spoilt("Repeat", lambda runs, ins, outs: times(outs, 1 + 2e-5 * runs))  # right within the tolerance
Inputs = spoilt("Inputs", lambda runs, ins, outs: ins[0].fill(0))
ReferenceProcess = spoilt("ReferenceProcess", past_the_end)
Loses = spoilt("Loses", lambda runs, ins, outs: np.nan_to_num(outs[0], copy=False, posinf=1.0))  # as fast libraries
Crash = spoilt("Crash", lambda runs, ins, outs: os.abort())
Hang = spoilt("Hang", lambda runs, ins, outs: time.sleep(600))
Threads = spoilt("Threads", on_three_threads)
Together = spoilt("Together", beside_another)


class Pool:
    """Threads that live on, as a library's do."""

    the: Pool | None = None

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


class Own(_Binds):
    """Gives its results in memory of its own."""

    def bound(self, loaded, inputs, outputs):
        return lambda: loaded.compute(inputs)


class Unaligned(_Binds):
    """Cannot use memory that is not aligned, and says nothing."""

    def bound(self, loaded, inputs, outputs):
        seen = [array if array.ctypes.data % 64 == 0 else np.zeros_like(array) for array in inputs]
        return loaded.bind(seen, outputs)


class Fresh(_Binds):
    """Copies the inputs at its first run and never again."""

    def bound(self, loaded, inputs, outputs):
        first: list[np.ndarray] = []

        def run() -> None:
            first[:] = first or [array.copy() for array in inputs]
            loaded.bind(first, outputs)()

        return run


class Instances(_Binds):
    """All instances of a process share the buffers of the last that was bound; memory is told apart by address."""

    last: list[np.ndarray] = []  # noqa: RUF012

    def bound(self, loaded, inputs, outputs):
        Instances.last = list(inputs)
        return lambda: loaded.bind(Instances.last, outputs)()


class LetGo(_Spoilt):
    """What is loaded computes on memory that goes with whichever instance goes first."""

    gone = False

    def load(self, workdir, target, variant, inputs, outputs):
        LetGo.gone = False
        loaded = super().load(workdir, target, variant, inputs, outputs)
        weakref.finalize(loaded, setattr, LetGo, "gone", True)
        return loaded

    @staticmethod
    def spoil(runs, inputs, outputs):
        outputs[0][...] += np.float32(LetGo.gone)


class Rebound(_Binds):
    """Computes on the inputs that it was bound to first."""

    def bound(self, loaded, inputs, outputs):
        loaded.first = getattr(loaded, "first", inputs)
        return loaded.bind(loaded.first, outputs)
