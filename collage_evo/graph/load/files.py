"""Model files of any size: the weights of heavy models are saved as external data."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from collage_evo.files import link_or_copy, reading
from collage_evo.graph.ir.weights import (
    content,
    content_digest,
    fits_in_a_message,
    inlined,
    is_heavy,
    is_placed,
    light_copy,
    weight_bytes,
    weight_files,
)

APART_BYTES = 2**20
"""Bytes of a weight from which on it has a file of its own, where weights are apart. Chosen."""
_ALIGNED = 2**16
"""Offsets of weights in a data file: multiples of it can be mapped into memory on every system."""


def save_model(model: onnx.ModelProto, path: Path, in_one: bool = False, apart: bool = False) -> None:
    """Write ``model`` unchanged to ``path``, and the weights of a heavy one to ``path`` + ``.data``.

    Args:
        model: the model.
        path: of the file.
        in_one: write a single file if one message can hold the model.
        apart: large weights have a file each, ``path`` + ``.data.`` + a number, which models with the same weights
            can share; one that is in a file of this process is a link to that.
    """
    if not is_heavy(model) or (in_one and fits_in_a_message(model)):
        onnx.save(inlined(model), path)
        return
    numbers = itertools.count()
    with data_of(path).open("wb") as data_file:

        def place(tensor: TensorProto, raw: np.ndarray) -> Mapping[str, str]:
            if apart and raw.nbytes >= APART_BYTES:
                file = path.with_name(f"{data_of(path).name}.{next(numbers):05d}")
                _write_apart(tensor, raw, file)
                return {"location": file.name, "offset": "0"}
            data_file.seek(-data_file.tell() % _ALIGNED, os.SEEK_CUR)
            offset = data_file.tell()
            data_file.write(raw.data)
            return {"location": Path(data_file.name).name, "offset": str(offset)}

        light = light_copy(model, place)
    path.write_bytes(light.SerializeToString())


def _write_apart(tensor: TensorProto, raw: np.ndarray, file: Path) -> None:
    if is_placed(tensor):
        own = weight_files().directory / ExternalDataInfo(tensor).location
        if own.stat().st_size == raw.nbytes:
            link_or_copy(own, file)
            return
    file.write_bytes(raw.data)


def save_linked(model: onnx.ModelProto, path: Path) -> None:
    """Write ``model`` to ``path``; the weights of a heavy one are links to files of this process, in ``path`` +
    ``.data``. So models that share weights share the space on disk too, where the file system has links."""
    if not is_heavy(model):
        onnx.save(inlined(model), path)
        return
    directory, files = data_of(path), weight_files()
    shutil.rmtree(directory, ignore_errors=True)  # of an earlier process, which gave other weights the same names
    directory.mkdir()

    def place(tensor: TensorProto, raw: np.ndarray) -> Mapping[str, str]:
        placed = files.place(tensor, raw)
        linked = directory / placed["location"]
        if not linked.exists():
            link_or_copy(files.directory / linked.name, linked)
        return {**placed, "location": f"{directory.name}/{linked.name}"}

    path.write_bytes(light_copy(model, place).SerializeToString())


def read_model(path: Path) -> onnx.ModelProto:
    """Read a model written by :func:`save_model` or :func:`save_linked`.

    Raises:
        DamagedFile: the file holds no model.
    """
    with reading(path, "resume the run, which writes it again"):
        model = onnx.load(path, load_external_data=False)
        adopted: dict[str, str] = {}
        for tensor in filter(uses_external_data, model.graph.initializer):
            entry = next(entry for entry in tensor.external_data if entry.key == "location")
            if entry.value not in adopted:
                adopted[entry.value] = weight_files().adopt(_within_data(path, entry.value))
            entry.value = adopted[entry.value]
            if content(tensor).nbytes != weight_bytes(tensor):
                raise ValueError(f"weight {tensor.name!r} is not whole")
        return model


def _within_data(path: Path, location: str) -> Path:
    """The file at ``location`` from the model at ``path``: one of its data files, or in its directory of data."""
    data = data_of(path)
    file = path.parent / location
    apart = file.parent == data.parent and file.name.startswith(f"{data.name}.")
    if not apart and file not in (data, data / file.name):
        raise ValueError(f"weights at {location!r} are not its own")
    return file


def data_of(path: Path) -> Path:
    """The data file of the model at ``path``, or the directory of such files."""
    return path.parent / f"{path.name}.data"


def digest(model: onnx.ModelProto) -> str:
    """SHA-256 of everything in ``model``, the same for the same model in every process."""
    if not is_heavy(model):
        return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    sha = hashlib.sha256()

    def place(tensor: TensorProto, raw: np.ndarray) -> Mapping[str, str]:
        sha.update(content_digest(raw).encode())
        return {}

    light = light_copy(model, place)
    sha.update(light.SerializeToString(deterministic=True))
    return sha.hexdigest()
