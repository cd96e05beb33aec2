"""The user's own inputs: reads files, folders or a function as one set of named arrays a sample."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collage_evo.errors import InputError, one_line
from collage_evo.files import reading, require_unwritten, stamps_of
from collage_evo.graph.ir.values import write_arrays
from collage_evo.graph.load.batches import samples_of
from collage_evo.graph.load.functions import load_function, names_function
from collage_evo.models import PREFIX
from collage_evo.models.images import draw_images

if TYPE_CHECKING:
    import onnx

Feeds = dict[str, np.ndarray]
_FORMS = (
    "give an .npz file, a folder of such files, of a NAME.npy for each input or of test_data_set_*/input_*.pb, "
    "or file.py:function"
)
IMAGES = f"{PREFIX}images"
"""The data source of synthetic images."""
MOST = 4000
"""Most samples from a user's function, which may yield without end."""


def read_feeds(
    source: str | Path,
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    labels: bool = False,
) -> tuple[Feeds, ...]:
    """The samples in ``source``, each with one array for every input of ``model``.

    Args:
        source: an ``.npz`` file with arrays by input name; a folder of such files; a folder with a ``NAME.npy`` for
            each input; a folder of ``test_data_set_*/input_*.pb`` as ONNX ships with models, or one such set; or
            ``file.py:function``, which yields a mapping of arrays for each sample, at most ``MOST`` of them; or
            ``builtin:images``, synthetic images for a model with one float32 input [N, 3, H, W].
            Arrays may hold many samples: see :func:`collage_evo.graph.load.batches.samples_of`. Where the model
            leaves the batch open, each row of one ``.npz``, or of a ``NAME.npy`` for each input, is a sample; of the
            other sources, each file, set or mapping is. Samples come in the order of their names. Nothing is
            unpickled.
        model: arrays must match its declared types; a dimension that it leaves open takes any size.
        shapes: of inputs whose dimensions the model leaves open; None for a size that varies.
        labels: also take arrays that are no inputs of the model.

    Raises:
        InputError: ``source`` holds nothing readable; an array is missing, unknown, or of a type or shape that the
            model does not take; or the function fails.
    """
    inputs = input_dims(model)
    dims = {name: (shapes or {}).get(name) or sizes for name, sizes in inputs.items()}
    rows = [name for name, sizes in inputs.items() if sizes and sizes[0] is None and (dims[name] or [1])[0] != 0]
    if str(source).startswith(PREFIX):
        return tuple(_drawn(str(source), model, dims))
    feeds: list[Feeds] = []
    for where, arrays, by_row in _read(str(source), model):
        for sample in samples_of(arrays, dims, where, by_row):
            extra = {name: array for name, array in sample.items() if labels and name not in inputs}
            fed = {name: array for name, array in sample.items() if name not in extra}
            feeds.append(check_feeds(fed, model, where) | extra)
            require_rows(feeds[-1], rows, where)
    if not feeds:
        raise InputError(f"{source} holds no data: {_FORMS}")
    return tuple(feeds)


def _drawn(source: str, model: onnx.ModelProto, dims: Mapping[str, Sequence[int | None] | None]) -> Iterator[Feeds]:
    """Synthetic images of the size that ``model`` takes; an open batch is 1."""
    from onnx import TensorProto

    if source != IMAGES:
        raise InputError(f"no data {source}: the only built-in data are {IMAGES}; else {_FORMS}")
    types = {name: value.type.tensor_type.elem_type for name, value in given_inputs(model).items()}
    name = next(iter(types), "")
    sizes = dims.get(name) or ()
    if list(types.values()) != [TensorProto.FLOAT] or len(sizes) != 4:
        wanted = f"{IMAGES} is for a model with one float32 input [N, 3, H, W]"
        raise InputError(f"{wanted}; this one takes {', '.join(types) or 'no input'}: {_FORMS}")
    batch, channels, height, width = sizes
    if channels not in (None, 3):
        raise InputError(f"{IMAGES} has 3 channels; input {name!r} takes {channels}: {_FORMS}")
    if height is None or width is None:
        raise InputError(f"{IMAGES} needs the size of input {name!r}: --shapes '{name}: [1, 3, 224, 224]'")
    yield from ({name: image} for image in draw_images(height, width, batch or 1))


def _read(source: str, model: onnx.ModelProto) -> Iterator[tuple[str, Feeds, bool]]:
    """The sets of arrays in ``source``, each with its origin, and whether it is the only one, for all samples."""
    if names_function(source):
        yield from ((where, arrays, False) for where, arrays in _yielded(source))
        return
    path = Path(source).expanduser()
    if not path.exists():
        raise InputError(f"no data {path}: {_FORMS}")
    if path.suffix == ".py":
        raise InputError(f"{source} is Python: name the function in it that yields samples, as {source}:samples")
    sets = sorted((p for p in path.glob("test_data_set_*") if p.is_dir()), key=_number) or [path]
    tensors = [file for folder in sets for file in folder.glob("input_*.pb")]
    archives, arrays = [path] if path.is_file() else sorted(path.glob("*.npz")), sorted(path.glob("*.npy"))
    before = stamps_of(archives or arrays or tensors)
    if archives:
        yield from ((str(file), read_npz(file), path.is_file()) for file in archives)
    elif arrays:
        yield str(path), {file.stem: _read_npy(file) for file in arrays}, True
    elif tensors:
        yield from ((str(folder), _read_set(folder, model), False) for folder in sets)
    require_unwritten(before)


def _yielded(source: str) -> Iterator[tuple[str, Feeds]]:
    """What the user's function yields. It runs in this process: it is the user's own code."""
    function = load_function(source)
    try:
        for index, sample in enumerate(itertools.islice(function(), MOST)):
            if not isinstance(sample, Mapping):
                raise TypeError(f"it yields {type(sample).__name__}, not a mapping of arrays by input name")
            yield f"{source}, sample {index},", {str(name): np.asarray(array) for name, array in sample.items()}
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"data.source {source} raised {type(error).__name__}: {one_line(error)}") from error


def input_dims(model: onnx.ModelProto) -> dict[str, list[int | None] | None]:
    """The declared sizes of each input, without weights, None for an open one; None for an unknown rank."""
    return {name: _dims(value) for name, value in given_inputs(model).items()}


def check_feeds(feeds: Mapping[str, np.ndarray], model: onnx.ModelProto, where: str) -> Feeds:
    """``feeds`` in the order of the model's inputs, with the types that it declares.

    Raises:
        InputError: as :func:`read_feeds`; ``where`` names the arrays' source.
    """
    inputs = given_inputs(model)
    if fixed := sorted((set(feeds) - set(inputs)).intersection(value.name for value in model.graph.input)):
        raise InputError(
            f"{where} has an array {fixed[0]!r}, which has a value in the model's file that is compiled in: leave it "
            "out of the data, or take that initializer out of the file"
        )
    if unknown := sorted(set(feeds) - set(inputs)):
        raise InputError(
            f"{where} has an array {unknown[0]!r}, which is no input of the model; "
            f"its inputs are: {', '.join(inputs)} (labels are for accuracy.metric)"
        )
    if missing := [name for name in inputs if name not in feeds]:
        raise InputError(f"{where} has no array {missing[0]!r}: the model takes {', '.join(inputs)}")
    return {name: _checked(np.asarray(feeds[name]), value, where) for name, value in inputs.items()}


def require_rows(feeds: Mapping[str, np.ndarray], batched: Iterable[str], where: str) -> None:
    """Require some rows in ``batched``, inputs whose leading size is open: an empty batch would run in no time.

    Raises:
        InputError: each of them is empty; ``where`` names the arrays' source.
    """
    sizes = {name: array.shape for name, array in feeds.items() if name in set(batched)}
    if sizes and all(shape[:1] == (0,) for shape in sizes.values()):
        name, shape = next(iter(sizes.items()))
        raise InputError(f"{where} has no row of {name!r} (shape {list(shape)}): give one at least")


def read_npz(path: Path) -> Feeds:
    """The arrays of an ``.npz`` file by name.

    Raises:
        InputError: the file is no ``.npz``, or holds objects.
    """
    with reading(path, "write it with numpy.savez(path, NAME=array)", wrong="cannot be read as .npz"):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise ValueError("one array without a name")
        with loaded as data:
            return {name: data[name] for name in data.files}


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as an ``.npz``, whatever their names are. Arrays of objects are written as strings.

    Raises:
        InputError: an array holds objects that are no strings.
    """
    for name, array in arrays.items():
        if array.dtype == object and not all(isinstance(value, str) for value in array.flat):
            raise InputError(f"input {name!r} holds Python objects: give an array of numbers or strings")
    write_arrays(path, arrays)


def _read_npy(path: Path) -> np.ndarray:
    with reading(path, "write it with numpy.save(path, array)", wrong="cannot be read as .npy"):
        return np.asarray(np.load(path, allow_pickle=False))


def _read_set(path: Path, model: onnx.ModelProto) -> Feeds:
    """One of ONNX's sets: ``input_0.pb`` and so on, matched to inputs by name, else by position."""
    import onnx
    from onnx import numpy_helper

    inputs, feeds = list(given_inputs(model)), Feeds()
    for file in sorted(path.glob("input_*.pb"), key=_number):
        tensor, place = onnx.TensorProto(), _number(file)
        with reading(file, "write onnx.numpy_helper.from_array(array) into it", wrong="cannot be read as a tensor"):
            tensor.ParseFromString(file.read_bytes())
            array = numpy_helper.to_array(tensor)
        if tensor.name not in inputs and place >= len(inputs):
            raise InputError(f"{file} is for no input of the model, which has {len(inputs)}: {', '.join(inputs)}")
        feeds[tensor.name if tensor.name in inputs else inputs[place]] = array
    return feeds


def _number(path: Path) -> int:
    """The last number in a file's name."""
    numbers = re.findall(r"\d+", path.stem)
    return int(numbers[-1]) if numbers else 0


def given_inputs(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The inputs that are not weights, by name."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {value.name: value for value in model.graph.input if value.name not in constants}


def _checked(array: np.ndarray, value: onnx.ValueInfoProto, where: str) -> np.ndarray:
    """``array`` in the type that the model declares for ``value``."""
    from onnx import TensorProto, helper

    if value.type.WhichOneof("value") != "tensor_type":
        raise InputError(
            f"input {value.name!r} is no tensor, so {where} cannot hold it: "
            "only models whose inputs are tensors can run"
        )
    tensor = value.type.tensor_type
    if tensor.elem_type == TensorProto.STRING:
        if array.dtype.kind not in "UOT":
            raise InputError(f"{where} has {array.dtype} for {value.name!r}; the model takes strings")
        converted = array.astype(object)
    else:
        converted = _of_type(array, helper.tensor_dtype_to_np_dtype(tensor.elem_type), value.name, where)
    dims = _dims(value)
    if dims is not None and not (
        len(dims) == converted.ndim and all(d in (None, n) for d, n in zip(dims, converted.shape, strict=True))
    ):
        declared = ", ".join("?" if size is None else str(size) for size in dims)
        batch = dims[0] if dims and len(dims) == converted.ndim else None
        hint = f": give a multiple of {batch} rows" if batch and len(converted) % batch else ""
        raise InputError(
            f"{where} has {value.name!r} of shape {list(converted.shape)}; the model takes [{declared}]{hint}"
        )
    return converted


def _dims(value: onnx.ValueInfoProto) -> list[int | None] | None:
    """The sizes that the model declares, None for open ones; None for an unknown rank."""
    tensor = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in tensor.shape.dim]


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
