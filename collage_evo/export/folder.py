"""Writer of one program as a folder of plain files: pieces, a loader, samples, and pages to read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from jinja2 import Environment
from onnx import helper

from collage_evo.backends.plain import CompiledPiece, HasPlainFiles, PlainFiles, PlainPiece
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import engine_name
from collage_evo.codec import to_plain
from collage_evo.errors import InputError
from collage_evo.export.sources import StoredSamples
from collage_evo.graph.ir.elements import NUMPY
from collage_evo.graph.ir.memory import plan_memory
from collage_evo.hardware.processor import this_machine
from collage_evo.hardware.target import Target
from collage_evo.runtime import input_limits
from collage_evo.runtime.program import Program, lifetimes
from collage_evo.runtime.signature import Signature

SCHEMA = 1
_DEPLOYED = ("pipeline.py", "check.py", "pipeline.hpp", "tensors.hpp", "check.cpp")


@dataclass(frozen=True)
class Answered:
    """A program, its metadata, and the ONNX models of its pieces by their number."""

    program: Program
    target: Target
    signature: Signature
    samples: StoredSamples
    model: Callable[[int], onnx.ModelProto]
    latency_ms: float | None


def write_folder(answer: Answered, folder: Path) -> None:
    """Write ``answer`` into ``folder``, which exists and is empty.

    Raises:
        InputError: a piece or a tensor has no plain form.
    """
    _require_numpy(answer.program)
    program = answer.program
    pieces = []
    for index, piece in enumerate(program.pieces):
        forms = plain_files(piece.backend, piece.variant)
        stem = "model" if len(program.pieces) == 1 else f"{index:02d}_{piece.backend}"
        variant = get_backend(piece.backend).variant(piece.variant)
        borders = (piece.inputs, piece.outputs)
        model = partial(answer.model, index)
        written = forms.write(CompiledPiece(piece.directory, variant, answer.target, *borders, model), folder, stem)
        pieces.append(_describe_piece(answer, index, forms, written))
        shutil.copyfile(forms.code / "piece.py", folder / f"piece_{piece.backend}.py")
        shutil.copyfile(forms.code / "piece.hpp", folder / f"piece_{piece.backend}.hpp")
    for name in _DEPLOYED:
        (folder / name).write_text(_template(name))
    shutil.copyfile(input_limits.__file__, folder / "input_limits.py")
    manifest = _manifest(answer, pieces)
    (folder / "pipeline.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False))
    (folder / "answer.hpp").write_text(_rendered("answer.hpp.j2", manifest, program))
    _write_samples(answer, folder / "samples")
    (folder / "README.md").write_text(_rendered("README.md.j2", manifest, program))


def plain_files(backend: str, variant: str) -> PlainFiles:
    """The writer of plain files for pieces of ``backend``.

    Raises:
        InputError: they have no plain form.
    """
    library = get_backend(backend)
    if isinstance(library, HasPlainFiles):
        if not library.variant(variant).on_host:
            title = library.title or backend
            raise InputError(f"{title}'s pieces for a GPU have no plain form: serve the artifact")
        return library.plain_files()
    raise InputError(
        f"pieces of {engine_name(backend, variant)} have no plain form: serve the artifact, or run the search "
        f"with -s 'backends.use=[...]' without {backend}"
    )


def _require_numpy(program: Program) -> None:
    for tensor in program.tensors.values():
        if tensor.dtype not in NUMPY:
            what = f"tensor {tensor.name} is {tensor.dtype}"
            raise InputError(f"{what}, which plain files do not take: serve the artifact")


def _describe_piece(answer: Answered, index: int, forms: PlainFiles, written: PlainPiece) -> dict[str, Any]:
    piece = answer.program.pieces[index]
    return {
        "library": piece.backend,
        "version": piece.backend_version,
        "variant": piece.variant,
        "loader": f"piece_{piece.backend}",
        "kind": forms.kind,
        "files": written.files,
        "inputs": piece.inputs,
        "outputs": piece.outputs,
        "settings": dict(written.settings),
    }


def _manifest(answer: Answered, pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Content of ``pipeline.json``."""
    program, target = answer.program, answer.target
    plan = plan_memory(lifetimes(program))
    libraries = sorted({piece.backend for piece in program.pieces})
    environment: dict[str, str] = {}
    for name in libraries if len(libraries) > 1 else ():  # a single library waits for no other
        environment |= get_backend(name).environment(target)
    tensors = {
        tensor.name: {"dtype": tensor.dtype, "shape": tensor.shape, "offset": plan.offsets.get(tensor.name)}
        for tensor in program.tensors.values()
    }
    signature = to_plain(answer.signature)
    return {
        "schema": SCHEMA,
        "declared": {side: signature[side] for side in ("inputs", "outputs")},
        "machine": to_plain(target.machine),
        "threads": target.threads,
        "latency_ms": answer.latency_ms,
        "environment": environment,
        "inputs": program.inputs,
        "outputs": program.outputs,
        "limits": dict(program.limits),
        "arena_bytes": plan.size,
        "tensors": tensors,
        "pieces": pieces,
        "samples": len(answer.samples.pairs),
        "tolerance": answer.samples.tolerance,
    }


def _write_samples(answer: Answered, folder: Path) -> None:
    folder.mkdir()
    for number, pair in enumerate(answer.samples.pairs):
        names = (answer.program.inputs, answer.program.outputs)
        for side, values, order in zip(("in", "out"), pair, names, strict=True):
            for k, name in enumerate(order):
                np.save(folder / f"{number}.{side}.{k}.npy", np.asarray(values[name], order="C"), allow_pickle=False)


def _template(name: str) -> str:
    return resources.files("collage_evo.export").joinpath("deployed", name).read_text()


def _quoted(text: str) -> str:
    """``text`` as a C++ literal in which every character is visible."""
    return '"' + "".join(_escaped(letter) if letter not in '"\\' else f"\\{letter}" for letter in text) + '"'


def _cell(text: str) -> str:
    """``text`` as code in a cell of a Markdown table."""
    shown = "".join(map(_escaped, text)).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    room = " " if len(fence) > 1 else ""
    return f"{fence}{room}{shown}{room}{fence}"


def _escaped(letter: str) -> str:
    """The letter, or its number if it is invisible, ends a line or changes the direction of writing."""
    number = ord(letter)
    if letter.isprintable() and not 0xD800 <= number < 0xE000:
        return letter
    return f"\\{number:03o}" if number < 0x20 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _rendered(name: str, manifest: Mapping[str, Any], program: Program) -> str:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["replace_open"] = lambda size: "?" if size < 0 else size
    environment.filters["quoted"], environment.filters["cell"] = _quoted, _cell
    libraries = list(dict.fromkeys(piece["library"] for piece in manifest["pieces"]))
    numbers = {
        tensor: (helper.np_dtype_to_tensor_dtype(np.dtype(one["dtype"])), np.dtype(one["dtype"]).itemsize)
        for tensor, one in manifest["tensors"].items()
    }
    of_library = {}
    for piece in program.pieces:
        text = (plain_files(piece.backend, piece.variant).code / "lines.md.j2").read_text()
        first = next(one for one in manifest["pieces"] if one["library"] == piece.backend)
        of_library[piece.backend] = environment.from_string(text).render(piece=first, manifest=manifest)
    source = environment.from_string(_template(name))
    # by this machine, which writes the files' weights, wherever the answer was made
    wide = not this_machine().saturates_int8
    return source.render(
        manifest=manifest, libraries=libraries, numbers=numbers, lines=of_library, weights_of_8_bits=wide
    )
