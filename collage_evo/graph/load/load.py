"""Model loading: a path or ``builtin:NAME`` as a model with static inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from collage_evo.errors import InputError
from collage_evo.files import Stamps, reading, require_unwritten, stamps_of
from collage_evo.graph.ir.weights import (
    all_weights,
    array_of,
    bodies,
    graphs_of,
    is_heavy,
    is_placed,
    light,
    placed,
    weight_bytes,
)
from collage_evo.graph.load.data import given_inputs
from collage_evo.graph.load.guess import complete_shapes
from collage_evo.graph.load.shapes import check_shapes, dynamic_inputs, fix_shapes
from collage_evo.models import PREFIX
from collage_evo.models.builder import refill
from collage_evo.models.builtin import make_builtin

_AGAIN = "export or download it again"
MOST_OPERATORS = 200_000
"""Operators of a model at most, once its functions are inlined: a few kilobytes can make billions. Chosen: ten times
those of large networks."""
WEIGHTS_APART = 4
"""From this version of the format on, weights need not be inputs, and one that is may be fed."""


@dataclass(frozen=True)
class LoadedModel:
    """The user's model, with its inputs' dynamic dimensions fixed and external weights read in.

    ``dynamic`` is the model before its dimensions were fixed; None where there were none, or where a second copy
    would be too large. ``notes`` list the sizes that neither the user nor the model gave.
    """

    name: str
    original: onnx.ModelProto
    dynamic: onnx.ModelProto | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelFile:
    """The model that the user names. It is parsed on first use, and only once.

    Attributes:
        source: path of an ONNX file, or a built-in model such as ``builtin:resnet50`` or, with parameters,
            ``builtin:bert?layers=2&length=64``.
        seed: of a built-in model's random weights.
    """

    source: str
    seed: int = 0

    @property
    def declared(self) -> onnx.ModelProto:
        """The model as it declares itself, perhaps without external weights. Raises as :meth:`load`."""
        return self._parsed[1]

    def load(self, shapes: Mapping[str, Sequence[int]] | None = None, any_shapes: bool = False) -> LoadedModel:
        """The whole model, the dynamic dimensions of its inputs fixed.

        A model that leaves nothing open is :attr:`declared` itself, not a copy.

        Args:
            shapes: the full shape of each input that has a dynamic dimension. A missing batch size is 1, any other
                missing size what the model allows, if that is only one.
            any_shapes: use the smallest sizes that run for all that are still missing.

        Raises:
            InputError: the file cannot be used, or sizes are missing; the message gives the reason and the remedy.
        """
        name, declared = self._parsed[:2]
        check_shapes(declared, shapes or {})
        whole = self._whole
        if not dynamic_inputs(declared):
            return LoadedModel(name, whole)
        model = deepcopy(whole)
        chosen, notes = complete_shapes(model, shapes or {}, any_shapes)
        fix_shapes(model, chosen)
        return LoadedModel(name, model, whole, notes)

    def load_open(self) -> LoadedModel:
        """The whole model as it declares itself, for inputs of all shapes. Raises as :meth:`load`."""
        model = deepcopy(self._whole)
        return LoadedModel(self._parsed[0], model)

    @cached_property
    def _parsed(self) -> tuple[str, onnx.ModelProto, Stamps]:
        """The name, the parsed model, and if external weights are still to be read the stamps of all its files."""
        if self.source.startswith(PREFIX):
            return *make_builtin(self.source, self.seed), {}
        before = stamps_of([self._path])
        model = _parse(self._path)
        require_unwritten(before)
        with reading(self._path, _AGAIN):
            outside = map(external_data_helper.ExternalDataInfo, filter(_is_outside, all_weights(model)))
            apart = {self._path.parent / info.location for info in outside}
            return self._path.stem, model, {**before, **stamps_of(apart)} if apart else {}

    @cached_property
    def _whole(self) -> onnx.ModelProto:
        _, declared, before = self._parsed
        whole = _with_weights(declared, self._path)
        require_unwritten(before)
        return whole

    @property
    def _path(self) -> Path:
        return Path(self.source).expanduser()


def _parse(path: Path) -> onnx.ModelProto:
    if path.is_dir():
        raise InputError(f"{path} is a directory: give the .onnx file in it")
    if not path.exists():
        raise InputError(f"no model file {path}: check the path, or name a built-in one, as {PREFIX}resnet50")
    with path.open("rb") as file:
        if file.read(8)[4:] == b"ORTM":
            raise InputError(f"{path} is in ONNX Runtime's own format: give the .onnx file that it was made of")
    with reading(path, _AGAIN, wrong="is not an ONNX model, or only part of one"):
        model = onnx.load(path, format="protobuf", load_external_data=False)
    # Protobuf accepts bytes of other formats, the empty file among them, and skips what it does not know.
    if not (model.ir_version and model.opset_import and model.graph.node and model.graph.output):
        raise InputError(f"{path} is not an ONNX model (no operators in it): {_AGAIN}")
    with reading(path, _AGAIN):
        _make_dense(model, path)
    if model.ir_version < WEIGHTS_APART:
        _set_weights_apart(model)
    with reading(path, _AGAIN):
        if model.functions and (count := _operators(model)) > MOST_OPERATORS:
            much = f"{count:,} operators once its functions are inlined, more than {MOST_OPERATORS:,}"
            raise InputError(f"{path} has {much}: export a smaller model")
        for tensor in all_weights(model):
            _require_whole(tensor)
        return light(model)


def _make_dense(model: onnx.ModelProto, path: Path) -> None:
    """Replace sparse constants, which ONNX Runtime makes dense too when it loads them, and no other library knows."""
    for graph in graphs_of(model):
        if isinstance(graph, onnx.GraphProto):
            graph.initializer.extend([_dense(sparse, path) for sparse in graph.sparse_initializer])
            del graph.sparse_initializer[:]
        for attribute in (one for node in graph.node for one in node.attribute if one.HasField("sparse_tensor")):
            tensor = _dense(attribute.sparse_tensor, path)
            attribute.CopyFrom(helper.make_attribute("value", tensor))


def _dense(sparse: onnx.SparseTensorProto, path: Path) -> onnx.TensorProto:
    for part in filter(_is_outside, (sparse.values, sparse.indices)):
        _read_outside(part, path)
    values, indices = array_of(sparse.values), array_of(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    dense.flat[np.ravel_multi_index(tuple(indices.T), dense.shape) if indices.ndim > 1 else indices] = values
    return numpy_helper.from_array(dense, sparse.values.name)


def _operators(model: onnx.ModelProto) -> int:
    """Number of operators after the model's functions are inlined, which this does without.

    Raises:
        RecursionError: a function calls itself.
    """
    functions = {(one.domain, one.name, one.overload): one for one in model.functions}

    def inside(nodes: Iterable[onnx.NodeProto]) -> int:
        in_bodies = sum(inside(body.node) for node in nodes for body in bodies(node))
        return in_bodies + sum(called((node.domain, node.op_type, node.overload)) for node in nodes)

    @cache
    def called(operator: tuple[str, str, str]) -> int:
        return inside(functions[operator].node) if operator in functions else 1

    return inside(model.graph.node)


def _set_weights_apart(model: onnx.ModelProto) -> None:
    """Remove the weights from the inputs, where models of old versions list them though no request can feed them.

    An input with a default value, added to such a model, could not be fed either.
    """
    refill(model.graph.input, [*given_inputs(model).values()])
    model.ir_version = WEIGHTS_APART


def _read_linked(tensor: onnx.TensorProto, file: Path) -> None:
    """Read a weight from a file with several hard links, as content stores and ``cp -al`` make them, which ``onnx``
    refuses.

    Raises:
        ValueError: the file is shorter than the model declares.
    """
    info = external_data_helper.ExternalDataInfo(tensor)
    begin, size = info.offset or 0, file.stat().st_size
    length = size - begin if info.length is None else info.length
    if not 0 <= begin <= begin + length <= size:
        raise ValueError(f"weight {tensor.name!r} is not in {file.name}, which has {size} bytes")
    with file.open("rb") as source:
        source.seek(begin)
        tensor.raw_data = source.read(length)


def _with_weights(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """``model`` with its external weights read in and the size of every weight checked against its shape."""
    with reading(path, _AGAIN):
        if is_heavy(model):
            for tensor in filter(_is_outside, model.graph.initializer):
                # A message holds the memory of what it held for as long as it exists: one of the tensor's own.
                apart = deepcopy(tensor)
                _read_outside(apart, path)
                _require_whole(apart)
                tensor.CopyFrom(placed(apart))
        for tensor in filter(_is_outside, all_weights(model)):
            _read_outside(tensor, path)
        for tensor in all_weights(model):
            _require_whole(tensor)
        return light(model)


def _is_outside(tensor: onnx.TensorProto) -> bool:
    return external_data_helper.uses_external_data(tensor) and not is_placed(tensor)


def _read_outside(tensor: onnx.TensorProto, path: Path) -> None:
    """Read a weight that the model at ``path`` keeps in another file.

    Raises:
        InputError: that file is not there.
    """
    folder, real = path.parent, path.resolve().parent
    location = external_data_helper.ExternalDataInfo(tensor).location
    file = folder / location
    if not file.is_file():
        raise InputError(
            f"{path} keeps its weights in {location!r}, which is not there: put that file into {path.parent}"
        )
    if file.is_symlink() and file.resolve().parent == real:  # a download cache: the link's target holds both
        folder = real
        next(entry for entry in tensor.external_data if entry.key == "location").value = file.resolve().name
    if file.stat().st_nlink > 1 and file.resolve().is_relative_to(real):
        _read_linked(tensor, file)
    else:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _require_whole(tensor: onnx.TensorProto) -> None:
    """Check the size of a weight that is in the message against its shape.

    Raises:
        ValueError: it has another, or is of an unknown type.
    """
    if tensor.data_type not in onnx.TensorProto.DataType.values():
        raise ValueError(f"weight {tensor.name!r} is of the type {tensor.data_type}, which ONNX does not have")
    expected = weight_bytes(tensor)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != expected:
        raise ValueError(f"weight {tensor.name!r} has {len(tensor.raw_data)} bytes instead of {expected}")
