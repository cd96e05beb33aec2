"""A person's own measure of quality: takes ``file.py:function``, gives scores of outputs, higher is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from collage_evo.errors import InputError, one_line
from collage_evo.graph.functions import load_function, names_function

Values = Mapping[str, Any]
Metric = Callable[[Sequence[Values], Sequence[Values]], float]
"""From the outputs of each sample, and each sample's inputs and labels, to a score."""


def checked_name(text: str) -> str:
    """``text``, which is empty or names a function.

    Raises:
        ValueError: it does not.
    """
    if text and not names_function(text):
        raise ValueError(f"{text!r} names no function: write it as file.py:function")
    return text


def load_metric(text: str) -> Metric:
    """The metric that ``file.py:function`` names; what it raises comes as an error of one line.

    Raises:
        InputError: see :func:`collage_evo.graph.functions.load_function`.
    """
    function = load_function(text)

    def score(outputs: Sequence[Values], items: Sequence[Values]) -> float:
        try:
            found = float(np.asarray(function(list(outputs), list(items))).item())  # a batch of one gives an array
        except (Exception, SystemExit) as error:
            raise InputError(f"accuracy.metric {text} raised {type(error).__name__}: {one_line(error)}") from error
        if not math.isfinite(found):
            raise InputError(f"accuracy.metric {text} gave {found}: it has to give a finite number")
        return found

    return score
