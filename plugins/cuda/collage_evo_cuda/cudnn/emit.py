"""Translation of a plan's step to cuDNN's frontend: a graph with one engine chosen and compiled.

Written for nvidia-cudnn-frontend 1.32: ``pygraph`` and its methods, by the names that a plan has for operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import CollageError, one_line
from collage_evo_cuda.cudnn.plan import Operation, Plan, Step

_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "conv_fprop": ("image", "weight"),
    "conv_dgrad": ("loss", "filter"),
    "matmul": ("A", "B"),
    "sdpa": ("q", "k", "v", "bias"),
    **dict.fromkeys(("add", "sub", "mul", "div"), ("a", "b")),
    **dict.fromkeys(("max", "min", "pow"), ("input0", "input1")),
}
"""The frontend's names of an operation's tensors; ``input`` for a single one."""
_HEURISTICS = ("A", "B", "FALLBACK")
"""Heuristics for engines, in order of use: without tensor cores the first one often finds none."""
_FIRST_PYTHON_ENGINE = 10_000
"""Engines from that number on are not cuDNN's own: the frontend compiles them when they first run."""


def compiled(step: Step, plan: Plan, **device: Any) -> Any:
    """The step as a graph with a compiled engine.

    Args:
        step: of ``plan``.
        plan: of the region.
        device: what the frontend takes for a device: a ``handle`` on it, or its ``device_property`` and
            ``sm_version``.

    Raises:
        CollageError: cuDNN has no engine for it in the plan's arithmetic.
    """
    import cudnn

    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.FLOAT,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        **device,
    )
    try:
        _draw(cudnn, graph, step)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in _HEURISTICS])
        graph.deselect_numeric_notes(_refused(cudnn, step, plan.arithmetic))
        graph.check_support()
        return _first(cudnn, graph)
    except _raised(cudnn) as error:
        kinds = " + ".join(operation.kind for operation in step.operations)
        raise CollageError(f"no engine for {kinds} in {plan.arithmetic}: {one_line(error)}") from error


def uids(step: Step) -> Mapping[str, int]:
    """cuDNN's number of each tensor in memory, by its name."""
    return {view.name: number for number, view in enumerate(step.tensors, 1) if view.buffer}


def _draw(cudnn: Any, graph: Any, step: Step) -> None:
    """Make the step's tensors and operations."""
    numbers, outputs = uids(step), {operation.output for operation in step.operations}
    tensors: dict[str, Any] = {}
    for view in step.tensors:
        if view.name not in outputs:
            tensors[view.name] = graph.tensor(
                dim=list(view.shape),
                stride=list(view.strides),
                data_type=getattr(cudnn.data_type, _TYPES[view.dtype]),
                name=view.name,
                uid=numbers[view.name],
            )
    views = {view.name: view for view in step.tensors}
    for operation in step.operations:
        result, view = _call(graph, operation, tensors), views[operation.output]
        tensors[view.name] = result
        if view.buffer:
            result.set_output(True).set_uid(numbers[view.name])
            result.set_dim(list(view.shape)).set_stride(list(view.strides))
            result.set_data_type(getattr(cudnn.data_type, _TYPES[view.dtype]))


def _call(graph: Any, operation: Operation, tensors: Mapping[str, Any]) -> Any:
    """One operation's result."""
    names = _ARGUMENTS.get(operation.kind, ("input",))
    arguments = dict(zip(names, (tensors[name] for name in operation.inputs), strict=False))
    numbers = {key: list(value) if isinstance(value, tuple) else value for key, value in operation.attributes.items()}
    if operation.kind == "sdpa":
        result, _ = graph.sdpa(**arguments, **numbers, generate_stats=False, name="sdpa")
        return result
    return getattr(graph, operation.kind)(**arguments, **numbers)


def _refused(cudnn: Any, step: Step, arithmetic: str) -> list[Any]:
    """Excluded properties of engines: rounding below the requested precision, and nondeterminism."""
    notes = cudnn.numerical_note
    if not step.heavy:
        return [notes.NONDETERMINISTIC]
    excluded = [notes.NONDETERMINISTIC, notes.DOWN_CONVERT_INPUTS, notes.REDUCED_PRECISION_REDUCTION]
    # Tensor cores first round numbers of 32 bits to TF32.
    return [*excluded, notes.TENSOR_CORE] if arithmetic == Arithmetic.FLOAT32 else excluded


def _first(cudnn: Any, graph: Any) -> Any:
    """The graph with the heuristics' first engine that can be compiled."""
    reasons = []
    for index in range(graph.get_execution_plan_count()):
        engine, _ = graph.get_engine_and_knobs_at_index(index)
        if engine >= _FIRST_PYTHON_ENGINE:
            continue
        try:
            graph.build_plan_at_index(index)
        except _raised(cudnn) as error:
            reasons.append(one_line(error))
        else:
            return graph
    # The last error is of the engine that is refused least often.
    raise RuntimeError(reasons[-1] if reasons else "the heuristics know none")


def _raised(cudnn: Any) -> tuple[type[Exception], ...]:
    """The frontend's exceptions for what cuDNN does not support; its ValueError is for an invalid graph."""
    # The frontend maps its error codes to these (throw_if in python/pycudnn.cpp).
    return cudnn.cudnnGraphNotSupportedError, RuntimeError


@cache
def handle_on(stream: int) -> Any:
    """The handle of this process whose work goes to ``stream``."""
    import cudnn

    handle = cudnn.create_handle()
    cudnn.set_stream(handle, stream)
    return handle
