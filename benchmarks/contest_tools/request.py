"""A request of ``contest/elsewhere.py`` to a tool. This module imports only NumPy."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Sample = dict[str, np.ndarray]
NOT_INSTALLED = 3
"""As ``contest/elsewhere.py`` has it."""


@dataclass(frozen=True)
class Request:
    """Files of a model and its samples; ``made`` is the path of the answer."""

    model: str
    data: str
    inputs: list[str]
    calibration: int
    made: str

    def samples(self) -> list[Sample]:
        """The inputs of the samples for calibration."""
        with np.load(self.data) as arrays:
            data = {name: arrays[name][: self.calibration] for name in self.inputs}
        return [{name: data[name][index] for name in data} for index in range(len(data[self.inputs[0]]))]


class Reader:
    """Hands out samples one by one, in the ways in which tools ask for it."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples
        self.rewind()

    def rewind(self) -> None:
        self._left = iter(self._samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Sample:
        return next(self._left)


def read() -> Request:
    """The question in the file that the command line names."""
    return Request(**json.loads(Path(sys.argv[1]).read_text()))


def package(name: str) -> Any:
    """A module of the tool. Where the tool is not installed this ends the program with a status that says so."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name.partition(".")[0]:
            raise
        sys.exit(NOT_INSTALLED)
