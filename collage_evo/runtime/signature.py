"""The signature of a session's model, in ONNX Runtime's terms: inputs, outputs and the file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collage_evo.graph.ir.elements import onnx_name
from collage_evo.graph.ir.graph import OPAQUE, Tensor
from collage_evo.multimap import multimap
from collage_evo.runtime.program import Program

if TYPE_CHECKING:
    import onnx

_NO_VERSION = 2**63 - 1
"""ONNX Runtime's version of a model without one."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its type as ``tensor(float)``; open sizes as a name or None."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """A model file's metadata; ``custom_metadata_map`` is its ``metadata_props``."""

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = _NO_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """Inputs and outputs as the user's file declares them, and its metadata.

    ``compiled_in`` names inputs with a default value in the file, which ONNX Runtime lets a request override.
    """

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    meta: ModelMetadata = ModelMetadata()
    compiled_in: tuple[str, ...] = ()

    @property
    def static(self) -> bool:
        """Whether every input's shape is fixed."""
        return all(isinstance(size, int) for arg in self.inputs for size in arg.shape)

    @cached_property
    def shared(self) -> list[tuple[Any, ...]]:
        """Names of sizes of several axes, each with these, as inputs with an axis. Strings may be a list."""
        arrays = (arg for arg in self.inputs if arg.type != "tensor(string)")
        sizes = ((size, (arg.name, axis)) for arg in arrays for axis, size in enumerate(arg.shape))
        axes = multimap((size, place) for size, place in sizes if isinstance(size, str))
        return [(name, *places) for name, places in axes.items() if len(places) > 1]


def signature_of(model: onnx.ModelProto, outputs: Sequence[onnx.ValueInfoProto] = ()) -> Signature:
    """The signature of ``model``. Needs the package onnx.

    Args:
        model: as in its file.
        outputs: as in the file, where ``model`` now declares others.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    meta = ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.graph.doc_string,
        model.domain,
        model.doc_string,
        model.model_version if model.HasField("model_version") else _NO_VERSION,
        {prop.key: prop.value for prop in model.metadata_props},
    )
    inputs = tuple(_declared(value) for value in model.graph.input if value.name not in constants)
    declared = [value.name for value in model.graph.input]
    # Before version 4 of the format every weight is an input, and none can be fed.
    overridable = tuple(name for name in declared if name in constants) if model.ir_version >= 4 else ()
    declared_outputs = tuple(_declared(value) for value in outputs or model.graph.output)
    return Signature(inputs, declared_outputs, meta, overridable)


def signature_of_program(program: Program) -> Signature:
    """A signature without the model's file, from the types that ``program`` was compiled for."""
    return Signature(
        tuple(_known(program.tensors[name]) for name in program.inputs),
        tuple(_known(program.tensors[name]) for name in program.outputs),
    )


def _declared(value: onnx.ValueInfoProto) -> NodeArg:
    tensor = value.type.tensor_type
    # Some exporters write -1 for an open size.
    shape: list[int | str | None] = [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None
        for dim in tensor.shape.dim
    ]
    return NodeArg(value.name, _type_name(value.type), shape)


def _type_name(kind: onnx.TypeProto) -> str:
    import onnx

    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()})"
        case "sequence_type":
            return f"seq({_type_name(kind.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type_name(kind.optional_type.elem_type)})"
        case "map_type":
            key = onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()
            return f"map({key},{_type_name(kind.map_type.value_type)})"
    return OPAQUE


def _known(tensor: Tensor) -> NodeArg:
    shape: list[int | str | None] = [size if size >= 0 else None for size in tensor.shape]
    kind = OPAQUE if tensor.dtype == OPAQUE else f"tensor({onnx_name(tensor.dtype)})"
    return NodeArg(tensor.name, kind, shape)
