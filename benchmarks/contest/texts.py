"""The task of classifying files, with a trained network from a package and files of this machine."""

from __future__ import annotations

import ast
import json
import os
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx

from contest.shipped import files, fixed
from contest.task import Arrays, Task, write_task

MAGIKA = "magika==1.0.3"
SAME_TYPE = 60
"""Most files of one type."""
SHORTEST_FILE = 200
"""Bytes under which a file says too little."""


def make_files(task: Task, samples: int, held_out: int) -> None:
    """Both ends of files of this machine; label ``label``, the type that the package lists for their names."""
    content, config, types = files(
        MAGIKA, "standard_v3_3/model.onnx", "standard_v3_3/config.min.json", "content_types_kb.min.json"
    )
    settings = json.loads(config)
    size = settings["beg_size"] + settings["end_size"]
    labels = {name: index for index, name in enumerate(settings["target_labels_space"])}
    rows = list(_files(_by_ending(json.loads(types), labels), settings))
    order = np.random.default_rng(31).permutation(len(rows))[: samples + held_out]
    bytes_, label = (np.array(column) for column in zip(*(rows[index] for index in order), strict=True))

    def part(chosen: slice) -> Arrays:
        return {"bytes": bytes_[chosen, np.newaxis].astype(np.int32), "label": label[chosen]}

    model = fixed(onnx.load_from_string(content), {"bytes": (1, size)})
    write_task(task, model, part(slice(samples)), part(slice(samples, None)))


def _by_ending(types: Mapping[str, Mapping[str, Sequence[str]]], labels: Mapping[str, int]) -> Mapping[str, int]:
    """The type of each ending of a name that only one type has."""
    owners = defaultdict(set)
    for name, about in types.items():
        for ending in about["extensions"]:
            owners[ending].add(name)
    return {
        ending: labels[name] for ending, names in owners.items() if len(names) == 1 and (name := min(names)) in labels
    }


def _files(endings: Mapping[str, int], settings: Mapping[str, int]) -> Iterator[tuple[np.ndarray, int]]:
    """What the network sees of a file, and its type: some of each type, no file twice."""
    taken: dict[int, int] = defaultdict(int)
    seen = set()
    roots = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/share", "/usr/lib", "/usr/include")
    paths = (Path(at, name) for root in roots for at, _, names in os.walk(root) for name in names)
    for path in sorted(set(paths), key=lambda path: sha256(str(path).encode()).digest()):
        label = endings.get(path.suffix[1:].lower())
        if label is None or taken[label] >= SAME_TYPE or path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if len(content) >= SHORTEST_FILE and content not in seen:
            seen.add(content)
            taken[label] += 1
            yield _seen(content, settings), label


def _seen(content: bytes, settings: Mapping[str, int]) -> np.ndarray:
    """Bytes of both ends without white space before and after, filled up at the inner sides as there."""
    block, filler = settings["block_size"], settings["padding_token"]
    begin = np.full(settings["beg_size"], filler)
    end = np.full(settings["end_size"], filler)
    first, last = content[:block].lstrip()[: len(begin)], content[-block:].rstrip()[-len(end) :]
    begin[: len(first)] = np.frombuffer(first, np.uint8)
    end[len(end) - len(last) :] = np.frombuffer(last, np.uint8)
    return np.concatenate([begin, end])


def documentation() -> Sequence[str]:
    """Documentation strings of the standard library, read without importing anything."""
    texts = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts += [text for node in ast.walk(tree) if isinstance(node, kinds) and (text := ast.get_docstring(node))]
    return texts
