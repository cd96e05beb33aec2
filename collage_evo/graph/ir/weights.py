"""Weights of models: those of heavy models are in files of the process, which its sessions map into memory.

Serialising, parsing and copying gigabytes takes seconds each time. So the initializers of a heavy model are external
data (:func:`light`), each written once to a file of this process, whatever models contain it. ONNX Runtime and NumPy
map these files; :func:`array_of` and :func:`content` read an initializer wherever it is.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import itertools
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from collage_evo.digests import digest_of
from collage_evo.files import link_or_copy
from collage_evo.graph.ir.elements import is_packed, packed_bytes
from collage_evo.hardware.private import own_temporary

MESSAGE_BYTES = 2**31 - 2**24
"""A protobuf message holds less than 2 GiB, the operators included."""
HEAVY_BYTES = 2**26
"""Weights of fewer bytes stay in the message: apart, they save no time."""
LARGE_BYTES = 2**16
"""Bytes of an initializer that leaves the message of a heavy model."""
_PREFIX = "collage_evo-weights-"


def all_weights(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """Every constant tensor of a model: of its graph, of its functions, and of the bodies of their nodes."""
    for graph in graphs_of(model):
        yield from graph.initializer if isinstance(graph, onnx.GraphProto) else ()
        for attribute in (one for node in graph.node for one in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph of a model, its functions, and the bodies of their nodes."""
    queue: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while queue:
        yield (graph := queue.pop())
        queue.extend(body for node in graph.node for body in bodies(node))


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside ``node``: branches, loop bodies."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all constants."""
    return sum(map(weight_bytes, all_weights(model)))


def fits_in_a_message(model: onnx.ModelProto) -> bool:
    """Whether the model, weights included, can be one protobuf message."""
    return all_weight_bytes(model) < MESSAGE_BYTES


def is_heavy(model: onnx.ModelProto) -> bool:
    """Whether the large weights of the model are to be kept apart from it, or already are: as of any part of a heavy
    model, however small."""
    return any(map(is_placed, model.graph.initializer)) or all_weight_bytes(model) >= HEAVY_BYTES


def weight_bytes(tensor: TensorProto) -> int:
    """Size of the tensor in bytes, by its type and shape; types under a byte are packed."""
    if tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        return len(tensor.raw_data)
    return packed_bytes(_dtype(tensor), math.prod(tensor.dims))


def _dtype(tensor: TensorProto) -> np.dtype:
    """The tensor's type in NumPy or ``ml_dtypes``."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))


def light(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` itself, or if it is heavy a copy whose large initializers are in files of this process."""
    files = weight_files()
    return light_copy(model, files.place) if is_heavy(model) else model


def light_copy(
    model: onnx.ModelProto, place: Callable[[TensorProto, np.ndarray], Mapping[str, str]]
) -> onnx.ModelProto:
    """``model`` with large initializers outside: ``place`` returns the external data of each, given its bytes."""
    copy = onnx.ModelProto(**_fields(model, but="graph"))
    copy.graph.MergeFrom(onnx.GraphProto(**_fields(model.graph, but="initializer")))
    for tensor in model.graph.initializer:
        copy.graph.initializer.append(_outside(tensor, place) if _moves(tensor) else tensor)
    return copy


def _fields(message: onnx.ModelProto | onnx.GraphProto, but: str) -> dict[str, Any]:
    return {field.name: value for field, value in message.ListFields() if field.name != but}


def placed(tensor: TensorProto) -> TensorProto:
    """``tensor`` itself, or if it is large one whose content is in a file of this process."""
    return _outside(tensor, weight_files().place) if _moves(tensor) else tensor


def _outside(tensor: TensorProto, place: Callable[[TensorProto, np.ndarray], Mapping[str, str]]) -> TensorProto:
    raw = content(tensor)
    outside = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    outside.data_location = TensorProto.EXTERNAL
    for key, value in {**place(tensor, raw), "length": str(raw.nbytes)}.items():
        outside.external_data.add(key=key, value=value)
    return outside


def _moves(tensor: TensorProto) -> bool:
    """Whether the tensor's content is, or may be, outside of its message."""
    large = tensor.HasField("raw_data") and weight_bytes(tensor) >= LARGE_BYTES and not is_packed(_dtype(tensor))
    return large or is_placed(tensor)


def is_placed(tensor: TensorProto) -> bool:
    """Whether the tensor's content is in a file of this process."""
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    return tensor.data_location == TensorProto.EXTERNAL and location.startswith(_PREFIX)


def content(tensor: TensorProto) -> np.ndarray:
    """The bytes of a tensor that has raw data, or whose content is in a file of this process; read-only."""
    if is_placed(tensor):
        info = external_data_helper.ExternalDataInfo(tensor)
        path, shape = weight_files().directory / info.location, (weight_bytes(tensor),)
        return np.memmap(path, np.uint8, "r", info.offset or 0, shape)
    return np.frombuffer(tensor.raw_data, np.uint8)


def content_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes, in hexadecimal digits; the file's where it maps a whole file."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if base is not None and base.filename is not None and base.offset == 0 and array.flags.c_contiguous:
        path = Path(base.filename)
        if path.stat().st_size == raw.nbytes:
            return digest_of(path)
    return hashlib.sha256(raw.data).hexdigest()


def array_of(tensor: TensorProto) -> np.ndarray:
    """The tensor's value, mapped into memory where its content is in a file of this process.

    Raises:
        Exception: what the tensor holds does not agree with its type and shape.
    """
    if not is_placed(tensor):
        return np.asarray(numpy_helper.to_array(tensor))
    return np.asarray(content(tensor).view(_dtype(tensor)).reshape(tuple(tensor.dims)))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` itself, or a copy whose initializers in files of this process are in the message again."""
    if not any(map(is_placed, model.graph.initializer)):
        return model
    copy = deepcopy(model)
    for tensor in filter(is_placed, copy.graph.initializer):
        raw = content(tensor).tobytes()
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = raw
    return copy


@contextlib.contextmanager
def saved_near_weights(model: onnx.ModelProto) -> Iterator[Path]:
    """The path of a file with ``model``, in whose directory its weights are, for as long as the context lasts."""
    files = weight_files()
    with tempfile.NamedTemporaryFile(dir=files.directory, suffix=".onnx") as file:
        file.write(light_copy(model, files.place).SerializeToString())
        file.flush()
        yield Path(file.name)


@dataclass
class WeightFiles:
    """Files of weights in ``directory``, by name, type, shape and content of the tensor. Thread-safe."""

    directory: Path
    _known: dict[tuple[str, int, tuple[int, ...]], list[str]] = field(default_factory=dict)
    _adding: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def place(self, tensor: TensorProto, raw: np.ndarray) -> Mapping[str, str]:
        """The place of the content ``raw``; written unless an equal tensor is there."""
        if is_placed(tensor):
            return {entry.key: entry.value for entry in tensor.external_data}
        with self._adding:
            names = self._known.setdefault((tensor.name, tensor.data_type, tuple(tensor.dims)), [])
            for name in names:
                if np.array_equal(np.memmap(self.directory / name, np.uint8, "r"), raw):
                    return {"location": name, "offset": "0"}
            name = f"{_PREFIX}{next(self._numbers)}"
            (self.directory / name).write_bytes(raw.data)
            names.append(name)
            return {"location": name, "offset": "0"}

    def adopt(self, path: Path) -> str:
        """The location of the file at ``path``, which stays where it is."""
        name = f"{_PREFIX}{next(self._numbers)}"
        link_or_copy(path, self.directory / name)  # ONNX Runtime follows no symbolic link that leads outside
        return name


def weight_files() -> WeightFiles:
    """The files of this process, which are removed at its end; those of a process that was killed, by the next."""
    return _files(os.getpid())


def remove_weight_files() -> None:
    """Remove this process's files, before it ends without the interpreter's own end."""
    if _files.cache_info().currsize:
        shutil.rmtree(weight_files().directory, ignore_errors=True)
        _remove_abandoned(own_temporary())


_locks: list[IO[bytes]] = []
"""Locks that last as long as this process."""


@cache
def _files(process: int) -> WeightFiles:
    """``process``: a forked one has files of its own."""
    root = own_temporary()
    _remove_abandoned(root)
    lock_file = tempfile.NamedTemporaryFile(prefix=_PREFIX, suffix=".lock", dir=root, delete=False)  # noqa: SIM115
    fcntl.flock(lock_file, fcntl.LOCK_EX)
    _locks.append(lock_file.file)
    directory = Path(lock_file.name).with_suffix("")
    directory.mkdir()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(directory, ignore_errors=True)
            Path(lock_file.name).unlink(missing_ok=True)
            _remove_abandoned(root)  # worker processes end by a signal

    atexit.register(remove)
    return WeightFiles(directory)


def _remove_abandoned(root: Path) -> None:
    """Remove files in ``root`` whose lock no process holds any more."""
    for lock in root.glob(f"{_PREFIX}*.lock"):
        with contextlib.suppress(OSError), lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            lock.unlink(missing_ok=True)
