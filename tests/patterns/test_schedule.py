"""Regions that share a step of a schedule share no memory, and the runner refuses them so far."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.backends.base import Target
from collage_evo.errors import InputError
from collage_evo.graph.ir import Tensor
from collage_evo.patterns.match import Placement, Region
from collage_evo.patterns.schedule import SEQUENTIAL, Schedule
from collage_evo.runtime.program import Piece, Program, lifetimes
from collage_evo.runtime.runner import Runner

PAIR = Schedule(((1, 3),))


def branches(schedule: Schedule) -> Program:
    """``x`` to ``a``; from it ``b`` and ``c``; from those ``y``."""
    wires = ((("x",), "a"), (("a",), "b"), (("a",), "c"), (("b", "c"), "y"))
    pieces = tuple(Piece(Path(), "any", "default", reads, (makes,)) for reads, makes in wires)
    return Program(pieces, ("x",), ("y",), {n: Tensor(n, "float32", (4,)) for n in "xabcy"}, schedule)


def test_steps_hold_every_region_once_and_in_order() -> None:
    assert SEQUENTIAL.steps(3) == (range(0, 1), range(1, 2), range(2, 3))
    assert PAIR.steps(4) == (range(0, 1), range(1, 3), range(3, 4))
    assert Schedule(((0, 2), (2, 4))).steps(4) == (range(0, 2), range(2, 4))
    assert SEQUENTIAL.steps(0) == ()


def test_what_is_alive_follows_the_steps() -> None:
    alive = {life.tensor.name: (life.first, life.last) for life in lifetimes(branches(SEQUENTIAL))}
    assert alive == {"x": (-1, 4), "a": (0, 2), "b": (1, 3), "c": (2, 3), "y": (3, 4)}
    alive = {life.tensor.name: (life.first, life.last) for life in lifetimes(branches(PAIR))}
    assert alive == {"x": (-1, 3), "a": (0, 1), "b": (1, 2), "c": (1, 2), "y": (2, 3)}


def test_placements_that_run_otherwise_are_others() -> None:
    regions = tuple(Region(1 << i, "any") for i in range(4))
    assert Placement(regions).key != Placement(regions, PAIR).key


def test_the_runner_refuses_what_it_cannot_run() -> None:
    with pytest.raises(InputError, match="at the same time cannot be run"):
        Runner(branches(PAIR), Target("cpu", 1, ()))
