"""Execution of a plan on the device: calls that enqueue a region's steps on a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from collage_evo.codec import to_json
from collage_evo.errors import CollageError, InputError
from collage_evo.files import BUILD_ANEW, read_json, reading
from collage_evo.graph.ir.memory import Lifetime, MemoryPlan, place, plan_memory
from collage_evo.graph.ir.values import write_arrays
from collage_evo_cuda.cudnn.emit import compiled, handle_on, uids
from collage_evo_cuda.cudnn.plan import Plan
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.open import open_device

PLAN, WEIGHTS = "plan.json", "weights.npz"
_LARGEST = {"float16": 65504.0}
_ALIGNMENT = 256


def step_file(number: int) -> str:
    """Name of the file of a step that was compiled."""
    return f"step{number}.cudnn"


def write(plan: Plan, weights: Mapping[str, np.ndarray], workdir: Path) -> tuple[str, ...]:
    """Write the plan, and its weights rounded to their types; returns the names of the files.

    Raises:
        CollageError: a weight is too large for its type.
    """
    (workdir / PLAN).write_text(to_json(plan))
    stored: dict[str, Any] = {}
    for buffer in plan.of("weight"):
        value = weights[buffer.name]
        if np.abs(value).max(initial=0.0, where=np.isfinite(value)) > _LARGEST.get(buffer.dtype, np.inf):
            raise CollageError(f"a weight is too large for {buffer.dtype}")
        stored[buffer.name] = _rounded(value, buffer.dtype)
    write_arrays(workdir / WEIGHTS, stored)
    return PLAN, WEIGHTS


def _rounded(value: np.ndarray, dtype: str) -> np.ndarray:
    """Contiguous in the device's type; bfloat16, which NumPy lacks, as its bits."""
    from ml_dtypes import bfloat16  # serving does not need it

    flat = np.ascontiguousarray(value, np.float32).reshape(-1)
    return flat.astype(bfloat16).view(np.uint16) if dtype == "bfloat16" else flat.astype(dtype)


class Loaded:
    """A region's plan, weights and compiled steps."""

    capturable = True

    def __init__(self, workdir: Path) -> None:
        """
        Raises:
            InputError: the files are damaged.
        """
        self.plan = read_json(workdir / PLAN, Plan, BUILD_ANEW)
        with reading(workdir / WEIGHTS, BUILD_ANEW), np.load(workdir / WEIGHTS, allow_pickle=False) as stored:
            self._values = {name: stored[name] for name in stored.files}
            wanted = {buffer.name: buffer.nbytes for buffer in self.plan.of("weight")}
            if wanted != {name: value.nbytes for name, value in self._values.items()}:
                raise ValueError("the weights are not those of its plan")
        paths = [workdir / step_file(number) for number in range(len(self.plan.steps))]
        self._files = [path.read_bytes() for path in paths] if all(path.exists() for path in paths) else []

    @cached_property
    def _weights(self) -> Mapping[str, DeviceArray]:
        """The weights on the device, shared by all bound calls."""
        device = open_device("cuda")
        sizes = {buffer.name: buffer.nbytes for buffer in self.plan.of("weight")}
        room = place(sizes, lambda one, other: True, _ALIGNMENT)
        array = device.arena(room.size)
        placed = {name: array(room.offsets[name], v.shape, str(v.dtype)) for name, v in self._values.items()}
        for name, value in self._values.items():
            device.copy_in(placed[name], value)
        device.synchronise()
        return placed

    def bind(self, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> Callable[[], None]:
        arrays = dict(zip((*self.plan.inputs, *self.plan.outputs), (*inputs, *outputs), strict=True))
        for name, array in arrays.items():
            if array.nbytes != self.plan.buffer(name).nbytes:
                raise InputError(f"cudnn has {self.plan.buffer(name).nbytes} bytes where {name} is {array.nbytes}")
        weights = self._weights  # first: a handle belongs to the context that the device enters
        handle = handle_on(next(iter(arrays.values())).stream)
        graphs = self._graphs(handle)
        room = inner_room(self.plan)
        # A workspace for all steps follows them.
        size = room.size + max(graph.get_workspace_size() for graph in graphs)
        start = open_device("cuda").arena(size)(0, (size,), "uint8")
        pointers = {name: array.pointer for name, array in (*arrays.items(), *weights.items())}
        pointers.update((name, start.pointer + offset) for name, offset in room.offsets.items())
        calls = []
        for step, graph in zip(self.plan.steps, graphs, strict=True):
            numbers = uids(step)
            pack = {numbers[view.name]: pointers[view.buffer] for view in step.tensors if view.buffer}
            calls.append(partial(graph.execute, pack, start.pointer + room.size, handle=handle))
        return partial(_run, calls, (start, weights))

    def _graphs(self, handle: Any) -> list[Any]:
        """The steps for the handle's device: compiled by ``build``, or compiled now."""
        if not self._files:
            return [compiled(step, self.plan, handle=handle) for step in self.plan.steps]
        import cudnn

        graphs = []
        for data in self._files:
            graph = cudnn.pygraph(handle=handle)
            graph.deserialize(handle, data)
            graphs.append(graph)
        return graphs


def inner_room(plan: Plan) -> MemoryPlan:
    """Memory plan of the buffers between steps, which run one after the other."""
    sizes = {buffer.name: buffer.nbytes for buffer in plan.of("inner")}
    used: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for view in step.tensors:
            if view.buffer in sizes:
                used.setdefault(view.buffer, []).append(number)
    return plan_memory([Lifetime(name, sizes[name], steps[0], steps[-1]) for name, steps in used.items()], _ALIGNMENT)


def _run(calls: Sequence[Callable[[], None]], _: Any) -> None:
    """Enqueue the steps; the last argument holds the memory and the weights as long as the call exists."""
    for call in calls:
        call()
