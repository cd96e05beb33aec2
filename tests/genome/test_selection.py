"""Selection: who survives and what a front is worth; DEAP draws from the generator of the search."""

from __future__ import annotations

import random

import pytest

from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Objective
from collage_evo.genome.selection import Individual, drawing_from, fitness_of, hypervolume, survivors, violation
from collage_evo.genome.settings import GaSettings
from tests.support.precise import BUDGET


def individual(key: str, *values: float) -> Individual:
    """With a latency, and an error if there are two values."""
    fitness = fitness_of((Objective.LATENCY, Objective.ERROR)[: len(values)])
    return Individual(key, Genome((), ()), fitness(values))


def test_hypervolume_is_the_share_of_the_box_that_the_front_dominates() -> None:
    front = [individual("a", 1, 1.0), individual("b", 2, 0.5), individual("beyond", 5, 0.0)]
    assert hypervolume(front, (4.0, 2.0)) == pytest.approx(0.5)
    assert hypervolume([], (4.0, 2.0)) == 0


def test_the_fastest_within_the_budget_survive_a_crowded_front() -> None:
    pool = [individual(f"front{i}", 10 - i, i / 10) for i in range(10)]
    near = [individual("near", 7.01, 0.3), individual("nearer", 7.005, 0.3)]
    kept = survivors(pool + near, GaSettings(population=6, elite=3), random.Random(0), bounds=(0.3,))
    assert [one.key for one in kept[:3]] == ["front3", "nearer", "near"]
    assert len({one.key for one in kept}) == 6
    assert {"front0", "front9"} <= {one.key for one in kept}


def test_what_keeps_the_budget_comes_first_and_then_what_is_fastest() -> None:
    found = [violation(values, (BUDGET,)) for values in ((8.0, 0.0), (9.0, BUDGET), (1.0, 0.011), (0.5, 0.02))]
    assert found == sorted(found)
    assert violation((9.0, 0.005, 3.0), (BUDGET, 3.0)) < violation((8.0, 0.005, 3.1), (BUDGET, 3.0))


def test_survivors_are_the_elite_and_winners_of_tournaments() -> None:
    pool = [individual(str(index), float(index)) for index in range(24)]
    settings = GaSettings(population=8, elite=2, tournament=2)
    chosen = [one.key for one in survivors(pool, settings, random.Random(3))]
    assert chosen[:2] == ["0", "1"]
    assert len(set(chosen)) == 8
    assert chosen[2:] != [str(index) for index in range(2, 8)]


def test_generator_is_lent_and_given_back() -> None:
    random.seed(7)
    before = random.getstate()
    ours = random.Random(1)
    with drawing_from(ours):
        drawn = random.random()
    assert random.getstate() == before
    assert drawn == random.Random(1).random()
    assert ours.getstate() != random.Random(1).getstate()
