"""Choice of a metric: by name, as ``file.py:function``, or as a function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collage_evo.accuracy.metric import FunctionMetric, Metric, RelativeError
from collage_evo.accuracy.named import NAMED, named
from collage_evo.accuracy.recall import Recall
from collage_evo.digests import digest_of
from collage_evo.errors import InputError
from collage_evo.graph.load.functions import names_function
from collage_evo.graph.reference.noise import Noise

OWN_FILE = "put it into a file of its own and import it from there: measuring processes load it by file and name"


def checked_name(text: str) -> str:
    """``text``, which is empty, a metric's name, or names a function.

    Raises:
        ValueError: it is none of these.
    """
    if text and named(text) is None and not names_function(text):
        raise ValueError(f"{text!r} is no metric: choose {', '.join(NAMED)}, or a function as file.py:function")
    return text


def load_metric(text: str, excused: Mapping[str, Noise] = MappingProxyType({}), sha256: str = "") -> Metric:
    """The metric for a :func:`checked_name`; if that is empty, the relative error beyond what is ``excused``.

    ``sha256``: of the function's file when the run began; empty where any will do.

    Raises:
        InputError: see :func:`collage_evo.graph.load.functions.load_function`; or the file is another by now.
    """
    if not text:
        return RelativeError(excused)
    metric = named(text) or FunctionMetric(text)
    if sha256 and sha256_of_metric(text) != sha256:
        raise InputError(
            f"the file of accuracy.metric {text} was changed since the run began: restore it to continue, or start "
            "over with run MODEL --overwrite"
        )
    return metric


def fewest_samples(text: str) -> int:
    """How many samples the metric of that name needs at least; 1 where that is not known, as of a function."""
    metric = named(text)
    return metric.fewest if isinstance(metric, Recall) else 1


def sha256_of_metric(text: str) -> str:
    """SHA-256 of the file of a function; empty for a metric by name."""
    path = Path(text.rpartition(":")[0]).expanduser()
    return digest_of(path) if names_function(text) and path.is_file() else ""


def portable(text: str) -> str:
    """``text`` for processes that work in other directories."""
    if not names_function(text):
        return text
    file, _, name = text.rpartition(":")
    return f"{Path(file).expanduser().absolute()}:{name}"


def name_of(metric: str | Callable[..., Any]) -> str:
    """A function as ``file.py:function``, or the text that was given.

    Raises:
        InputError: no other process finds that function again: a lambda, one inside another, of a notebook or of the
            program that runs.
    """
    if isinstance(metric, str):
        return metric
    name, module = getattr(metric, "__qualname__", ""), getattr(metric, "__module__", "")
    if not inspect.isfunction(metric) or not name.isidentifier():
        raise InputError(f"metric {name or metric!r} is no function of a module: {OWN_FILE}")
    if module == "__main__":
        raise InputError(f"metric {name} is defined in the program or notebook itself: {OWN_FILE}")
    file = inspect.getsourcefile(metric)
    if file is None or not Path(file).is_file() or getattr(sys.modules.get(module), name, None) is not metric:
        raise InputError(f"metric {name} is not what its module has under that name: {OWN_FILE}")
    return f"{Path(file).absolute()}:{name}"
