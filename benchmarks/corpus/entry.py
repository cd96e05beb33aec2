"""One model of the corpus on disk: the ONNX file, arrays that it runs on, and what is known of it.

For ``NAME.onnx`` there is ``NAME.npz`` with its inputs and ``NAME.json`` with where it comes from. Nothing here
needs more than onnx, numpy and ONNX Runtime, so that files can be made in an environment of their own.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.load.data import write_npz

Arrays = dict[str, np.ndarray]
Value = Any
"""What ONNX Runtime gives: an array, or for sequences and maps lists and dictionaries."""
SHARED = ".data"
"""External weights of NAME.onnx lie in NAME.onnx.data, beside it."""


@dataclass(frozen=True)
class Entry:
    """A model that ONNX Runtime runs.

    ``shapes`` are those of the inputs whose dimensions the file leaves open; ``source`` says who made it, as a
    package with its version or in a few words; ``license`` is what the package's metadata says.
    """

    name: str
    part: str
    source: str
    license: str
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Draw:
    """How an input's array is made: standard normal floats, integers below ``high``, or one value everywhere."""

    shape: tuple[int, ...]
    high: int | None = None
    value: float | None = None

    def array(self, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
        if self.value is not None:
            return np.full(self.shape, self.value).astype(dtype)
        if self.high is not None:
            return rng.integers(0, self.high, self.shape).astype(dtype)
        return rng.standard_normal(self.shape).astype(dtype)


def normal(*shape: int) -> Draw:
    return Draw(shape)


def below(high: int, *shape: int) -> Draw:
    return Draw(shape, high=high)


def filled(value: float, *shape: int) -> Draw:
    return Draw(shape, value=value)


def draw_inputs(model: onnx.ModelProto, draws: Mapping[str, Draw | np.ndarray], seed: int = 0) -> Arrays:
    """Arrays for the inputs of ``model``, those in ``draws``; a static input that is missing there is normal."""
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    for value in open_inputs(model):
        draw = draws.get(value.name, normal(*_dims(value)))
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        arrays[value.name] = draw if isinstance(draw, np.ndarray) else draw.array(np.dtype(dtype), rng)
    return arrays


def open_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller has to give: initializers may stand among the graph's inputs too."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def runs(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Why ONNX Runtime does not run the file on these arrays; empty if it does."""
    try:
        run(path, arrays)
    except Exception as error:  # its exceptions have no base class of their own
        return " ".join(str(error).split())
    return ""


def run(path: Path, arrays: Mapping[str, np.ndarray], optimised: bool = True) -> list[Value]:
    """ONNX Runtime's answers on one thread, with its default optimisations or none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    if not any(_is_lacking(_dtype(value.type)) for value in (*session.get_inputs(), *session.get_outputs())):
        return list(session.run(None, dict(arrays)))
    # ONNX Runtime takes and gives types that NumPy lacks as its own values only, made from their bits.
    values = {name: _value(array) for name, array in arrays.items()}
    outputs = session.run_with_ort_values(None, values)
    return [_array(value) for value in outputs]


def add(folder: Path, name: str, part: str, source: str, license: str, arrays: Arrays) -> str:
    """Take up the file ``NAME.onnx`` that lies in ``folder``: returns why not, or nothing.

    A file that ONNX Runtime does not run on ``arrays`` is no part of the corpus, and is left without its ``.json``.
    """
    path = folder / f"{name}.onnx"
    if refusal := runs(path, arrays):
        return refusal
    model = onnx.load(path, load_external_data=False)
    dynamic = {value.name for value in open_inputs(model) if not all(d > 0 for d in _dims(value))}
    shapes = {key: array.shape for key, array in arrays.items() if key in dynamic}
    plain = {key: _plain(array) for key, array in arrays.items()}
    write_npz(path.with_suffix(".npz"), plain)
    known = {"part": part, "source": source, "license": license, "shapes": shapes}
    path.with_suffix(".json").write_text(json.dumps(known, indent=1))
    return ""


def entries(folder: Path) -> Iterator[Entry]:
    """Every model in ``folder``, by name: its place in there."""
    for path in sorted(folder.rglob("*.json")):
        fields = json.loads(path.read_text())
        shapes = {name: tuple(shape) for name, shape in fields.pop("shapes").items()}
        yield Entry(str(path.relative_to(folder).with_suffix("")), **fields, shapes=shapes)


def load_inputs(path: Path) -> Arrays:
    """The arrays that lie beside the model at ``path``, in the types that it takes."""
    model = onnx.load(path, load_external_data=False)
    kinds = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in open_inputs(model)}
    with np.load(path.with_suffix(".npz")) as data:
        arrays = {name: data[name] for name in data.files}
    # Types that NumPy lacks come back as bare bytes.
    return {name: a.view(kinds[name]) if a.dtype.kind == "V" else a for name, a in arrays.items()}


def size_bytes(path: Path) -> int:
    """Of the file and its external weights."""
    return sum(part.stat().st_size for part in (path, Path(f"{path}{SHARED}")) if part.exists())


def _dims(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _plain(array: np.ndarray) -> np.ndarray:
    """Strings as NumPy's own, since objects would have to be pickled; types that NumPy lacks as bare bytes."""
    if array.dtype == object:
        return array.astype(str)
    return array.view(f"V{array.itemsize}") if _is_lacking(array.dtype) else array


def _dtype(declared: str) -> np.dtype:
    """NumPy's type, or that of ``ml_dtypes``, of ONNX Runtime's ``tensor(float)``; object for what has none."""
    name = declared.removeprefix("tensor(").removesuffix(")").upper()
    kinds = dict(TensorProto.DataType.items())
    return np.dtype(helper.tensor_dtype_to_np_dtype(kinds[name])) if name in kinds else np.dtype(object)


def _is_lacking(dtype: np.dtype) -> bool:
    """Whether NumPy has the type from ``ml_dtypes`` only."""
    return dtype.isbuiltin == 2


def _value(array: np.ndarray) -> onnxruntime.OrtValue:
    if not _is_lacking(array.dtype):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    tensor = numpy_helper.from_array(array)  # packs what is smaller than a byte, as ONNX Runtime does
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, tensor.data_type)
    ctypes.memmove(value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return value


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    """As an array of NumPy's types, or of ``ml_dtypes``'s."""
    if not _is_lacking(_dtype(value.data_type())):
        return np.asarray(value.numpy())
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return numpy_helper.to_array(TensorProto(data_type=value.element_type(), dims=value.shape(), raw_data=raw))
