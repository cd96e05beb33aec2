"""A function is taken by its file and name; one that no other process would find again is refused in one line."""

from __future__ import annotations

import functools
from types import FunctionType

import numpy as np
import pytest

from collage_evo.accuracy.choose import load_metric, name_of, portable
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError


def mean_output(outputs, items):  # type: ignore[no-untyped-def]
    return np.mean([output["p"] for output in outputs])


def renamed(outputs, items):  # type: ignore[no-untyped-def]
    return 0.0


shadowed, renamed = renamed, 1  # type: ignore[assignment]


def test_a_function_of_a_module_is_loaded_again_by_its_file_and_name() -> None:
    assert name_of(mean_output) == f"{__file__}:mean_output"
    assert load_metric(name_of(mean_output)).reference([Sample({}, {}, {"p": np.array(3.0)})]) == 3.0


def test_a_name_stays_and_a_file_becomes_absolute() -> None:
    assert name_of("agreement") == portable("agreement") == "agreement"
    assert portable("") == ""
    assert portable("m.py:f").endswith("/m.py:f")
    assert portable("m.py:f").startswith("/")


def test_what_no_other_process_would_find_is_refused() -> None:
    def inner(outputs, items):  # type: ignore[no-untyped-def]
        return 0.0

    for found in (lambda outputs, items: 0.0, inner, functools.partial(mean_output), shadowed):
        with pytest.raises(InputError, match="put it into a file of its own and import it from there"):
            name_of(found)
    in_notebook = FunctionType(mean_output.__code__, {}, "mean_output")
    in_notebook.__module__ = "__main__"
    with pytest.raises(InputError, match="metric mean_output is defined in the program or notebook itself"):
        name_of(in_notebook)
