"""A person's own inputs: takes an ``.npz``, a folder of such, or ONNX's test data, gives arrays by input name."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collage_evo.errors import InputError, one_line
from collage_evo.graph.elements import as_bytes

if TYPE_CHECKING:
    import onnx

Feeds = dict[str, np.ndarray]
_FORMS = "give an .npz file, a folder of such files, or one of test_data_set_*/input_*.pb"


def read_feeds(source: str | Path, model: onnx.ModelProto) -> tuple[Feeds, ...]:
    """The samples in ``source``, each with one array for every input of ``model``.

    Args:
        source: an ``.npz`` file with arrays by input name, which is one sample; a folder of such files; or a
            folder of ``test_data_set_*/input_*.pb`` as ONNX ships with models, or one such set. Samples come in
            the order of their names. Nothing is unpickled.
        model: its declared types are held against the arrays; a dimension that it leaves open takes any size.

    Raises:
        InputError: nothing there that can be read, or an array is missing, unknown, or of a type or shape that the
            model does not take.
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise InputError(f"no data {path}: {_FORMS}")
    samples, read = _samples(path)
    if not samples:
        raise InputError(f"{path} holds no data: {_FORMS}")
    return tuple(check_feeds(read(sample, model), model, str(sample)) for sample in samples)


def check_feeds(feeds: Mapping[str, np.ndarray], model: onnx.ModelProto, where: str) -> Feeds:
    """``feeds`` in the order of the model's inputs, with the types that it declares.

    Raises:
        InputError: as :func:`read_feeds`; ``where`` says whose arrays they are.
    """
    inputs = _inputs(model)
    if unknown := sorted(set(feeds) - set(inputs)):
        raise InputError(
            f"{where} has an array {unknown[0]!r}, which is no input of the model; "
            f"its inputs are: {', '.join(inputs)}"
        )
    if missing := [name for name in inputs if name not in feeds]:
        raise InputError(f"{where} has no array {missing[0]!r}: the model takes {', '.join(inputs)}")
    return {name: _checked(np.asarray(feeds[name]), value, where) for name, value in inputs.items()}


def read_npz(path: Path) -> Feeds:
    """The arrays of an ``.npz`` file by name.

    Raises:
        InputError: it is no such file, or holds objects.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("one array without a name")
        with loaded as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{path} cannot be read as .npz ({one_line(error)}): write it with numpy.savez(path, NAME=array)"
        ) from error


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as an ``.npz``, whatever their names are. Objects count as strings.

    Raises:
        InputError: an array holds objects that are no strings.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            if array.dtype == object and not all(isinstance(value, str) for value in array.flat):
                raise InputError(f"input {name!r} holds Python objects: give an array of numbers or strings")
            found = array.astype(str) if array.dtype == object else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, as_bytes(found), allow_pickle=False)


def _samples(path: Path) -> tuple[list[Path], Callable[[Path, onnx.ModelProto], Feeds]]:
    """Where the samples lie, and what reads one."""
    if path.is_file():
        return [path], _read_npz
    if found := sorted(path.glob("*.npz")):
        return found, _read_npz
    sets = sorted((p for p in path.glob("test_data_set_*") if p.is_dir()), key=_number)
    return sets or ([path] if any(path.glob("input_*.pb")) else []), _read_set


def _read_npz(path: Path, model: onnx.ModelProto) -> Feeds:
    return read_npz(path)


def _read_set(path: Path, model: onnx.ModelProto) -> Feeds:
    """One of ONNX's sets: ``input_0.pb`` and so on, each for the input it names, else for the one in its place."""
    import onnx
    from onnx import numpy_helper

    inputs, feeds = list(_inputs(model)), Feeds()
    for file in sorted(path.glob("input_*.pb"), key=_number):
        tensor, place = onnx.TensorProto(), _number(file)
        try:
            tensor.ParseFromString(file.read_bytes())
            array = numpy_helper.to_array(tensor)
        except Exception as error:  # protobuf's DecodeError, whose class differs between its implementations
            raise InputError(f"{file} cannot be read as a tensor: {one_line(error)}") from error
        if tensor.name not in inputs and place >= len(inputs):
            raise InputError(f"{file} is for no input of the model, which has {len(inputs)}: {', '.join(inputs)}")
        feeds[tensor.name if tensor.name in inputs else inputs[place]] = array
    return feeds


def _number(path: Path) -> int:
    """The last number in a file's name."""
    found = re.findall(r"\d+", path.stem)
    return int(found[-1]) if found else 0


def _inputs(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """What the caller gives: inputs that are no constants."""
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    return {value.name: value for value in model.graph.input if value.name not in constants}


def _checked(array: np.ndarray, value: onnx.ValueInfoProto, where: str) -> np.ndarray:
    """``array`` in the type that the model declares for ``value``."""
    from onnx import TensorProto, helper

    if value.type.WhichOneof("value") != "tensor_type":
        raise InputError(f"input {value.name!r} is no tensor, so {where} cannot hold it: leave data.source out")
    tensor = value.type.tensor_type
    if tensor.elem_type == TensorProto.STRING:
        if array.dtype.kind not in "UOT":
            raise InputError(f"{where} has {array.dtype} for {value.name!r}; the model takes strings")
        found = array.astype(object)
    else:
        found = _of_type(array, helper.tensor_dtype_to_np_dtype(tensor.elem_type), value.name, where)
    dims = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in tensor.shape.dim]
    fits = len(dims) == found.ndim and all(d in (None, n) for d, n in zip(dims, found.shape, strict=True))
    if tensor.HasField("shape") and not fits:
        declared = ", ".join("?" if size is None else str(size) for size in dims)
        raise InputError(f"{where} has {value.name!r} of shape {list(found.shape)}; the model takes [{declared}]")
    return found


def _of_type(array: np.ndarray, dtype: np.dtype, name: str, where: str) -> np.ndarray:
    if array.dtype == dtype:
        return array
    # NumPy's files know the types that it lacks (bfloat16, int4 ...) by their size only.
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    raise InputError(
        f"{where} has {array.dtype} for {name!r}; the model takes {dtype}: "
        f"convert it, as array.astype({dtype.name!r})"
    )
