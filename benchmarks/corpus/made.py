"""Files made the ways people make them: each maker gives a name, a way to write the file, and inputs for it.

    python -m corpus.made FOLDER [--match WORD]       (in benchmarks/, with any Python that has the exporters)

A module of makers whose libraries are not there is left out and named. What is there already is not made again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from corpus.entry import Draw, add, draw_inputs

PART = "made"
MODULES = ("graphs", "exports", "language", "tools", "classic", "keras_nets")
LICENSE = "this repository's"


@dataclass(frozen=True)
class Made:
    """A file to make: ``save`` writes it; ``source`` says how it comes about; inputs that are missing are normal."""

    name: str
    source: str
    save: Callable[[Path], None]
    inputs: Mapping[str, Draw | np.ndarray]


def make_models(folder: Path, match: str = "") -> list[str]:
    """Make what is not there yet in ``folder``/made; returns what could not be made, and why."""
    missing = []
    for name in MODULES:
        try:
            module = importlib.import_module(f"corpus.made_{name}")
        except ImportError as error:
            missing.append(f"made_{name}: left out, {error}")
            continue
        for made in module.models():
            if match in made.name and (problem := _make(folder / PART, made)):
                missing.append(f"{made.name}: {problem}")
    return missing


def _make(folder: Path, made: Made) -> str:
    path = folder / f"{made.name}.onnx"
    if path.with_suffix(".json").exists():
        return ""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # exporters warn of what is tried here on purpose
            made.save(path)
        arrays = draw_inputs(onnx.load(path, load_external_data=False), made.inputs)
    except Exception as error:  # an exporter that fails makes no file, and that is all that matters here
        traceback.print_exc(file=sys.stderr)
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if refusal := add(folder, made.name, PART, made.source, LICENSE, arrays):
        return f"ONNX Runtime: {refusal[:300]}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--match", default="", help="only names with this in them")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # exporters print what they failed at
    for line in make_models(args.folder, args.match):
        print(line, file=answers)


if __name__ == "__main__":
    main()
