"""A search that is killed again and again ends exactly where an undisturbed one ends."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from collage_evo.codec import to_json
from collage_evo.config import Settings
from collage_evo.errors import InputError, NotSearchable
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.settings import Budget
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.report.progress import LineReporter
from collage_evo.run.search import SearchRecord, recorded_search, run_search
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.seeds import make_seeds
from collage_evo.search.evolution.state import SearchState
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_space, resnet_like

PRINT = Fingerprint("model", "cpu, 1 thread", ("a 1", "b 2"), "matches")
KILLS = 20


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    return make_space(resnet_like(1), random.Random(5))


def search(space: SearchSpace, directory: Path, evaluations: int = 30) -> None:
    """A quick search with short generations, so that kills meet every part of them."""
    ga = Settings(population=8, offspring=2, screen_factor=2, climb=2, program_share=0.1, patience=0)
    target = SimulatedEvaluator(space, NonAdditive(layout=0.4, failures=0.05), noise=0.02)
    seeds, budget = make_seeds(space), Budget(evaluations)
    run_search(space, seeds, target, ga, budget, directory, PRINT, LineReporter(), clock=lambda: 0.0)


def forked(space: SearchSpace, directory: Path) -> int:
    """The search in a process of its own; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        search(space, directory)
        os._exit(0)
    except BaseException:
        os._exit(1)


def made(path: Path) -> Path:
    path.mkdir()
    return path


def kept(directory: Path) -> str:
    return to_json(checkpoint.load(directory, PRINT))


def test_killed_again_and_again_equals_uninterrupted(space: SearchSpace, tmp_path: Path) -> None:
    started = time.process_time()
    search(space, made(tmp_path / "whole"))
    longest = (time.process_time() - started) / 3
    truth = kept(tmp_path / "whole")
    rng = random.Random(1)
    kills = attempt = 0
    while kills < KILLS:
        directory = made(tmp_path / f"killed-{attempt}")
        finished, tries = False, 0
        while not finished:
            child = forked(space, directory)
            if kills < KILLS:  # later and later, so that a busy machine gets on too
                time.sleep(rng.uniform(0, longest * 1.1**tries))
                os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            finished = os.WIFEXITED(status)
            assert not finished or os.WEXITSTATUS(status) == 0
            kills += not finished
            tries += 1
        assert kept(directory) == truth
        attempt += 1


def test_larger_budget_goes_on_and_another_model_is_refused(space: SearchSpace, tmp_path: Path) -> None:
    search(space, made(tmp_path / "short"), evaluations=20)
    search(space, tmp_path / "short")
    search(space, made(tmp_path / "whole"))
    assert kept(tmp_path / "short") == kept(tmp_path / "whole")
    other = Fingerprint("other", *list(vars(PRINT).values())[1:])
    with pytest.raises(InputError, match="model was model and is now other"):
        checkpoint.load(tmp_path / "short", other)


def test_a_search_whose_budget_was_used_before_it_is_read_again(space: SearchSpace, tmp_path: Path) -> None:
    seeds = make_seeds(space)
    evaluator = SimulatedEvaluator(space, NonAdditive())
    search(space, made(tmp_path / "earlier"), evaluations=4)
    start = checkpoint.load(tmp_path / "earlier", PRINT)
    now = made(tmp_path / "now")
    run_search(space, seeds, evaluator, Settings(), Budget(2), now, PRINT, LineReporter(), start=start)
    assert recorded_search(space, now, PRINT).evaluated == start.evaluated


def test_what_a_search_found_is_read_again_without_searching(space: SearchSpace, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no usable checkpoint"):
        recorded_search(space, tmp_path, PRINT)
    search(space, tmp_path, evaluations=20)
    before = kept(tmp_path)
    found = recorded_search(space, tmp_path, PRINT)
    assert kept(tmp_path) == before
    assert {*found.evaluated} == {*found.outcomes} == {*checkpoint.load(tmp_path, PRINT).evaluated}
    ran = {key for key, one in found.evaluated.items() if one.outcome.ok}
    assert {placement.key for placement in found.ranked} == ran


def test_tuned_settings_take_over_after_the_first_generation(space: SearchSpace, tmp_path: Path) -> None:
    asked: list[int] = []

    def tuner(state: SearchState) -> Settings:
        asked.append(state.generation)
        return Settings(population=8, offspring=5, climb=0, patience=0)

    target = SimulatedEvaluator(space, NonAdditive(layout=0.4))
    settings, budget = Settings(population=8, offspring=2), Budget(23)
    arguments = (space, make_seeds(space), target, settings, budget, tmp_path, PRINT, LineReporter(), tuner)
    found = run_search(*arguments)
    assert asked == [1]
    assert [point["evaluations"] for point in found.convergence] == [8, 13, 18, 23]
    assert run_search(*arguments).state.evaluations == 23  # resumed: the tuner is asked, and knows what it chose
    assert asked == [1, 4]


def test_a_search_in_which_nothing_could_be_measured_says_so(space: SearchSpace, tmp_path: Path) -> None:
    settings = Settings(population=4, offspring=1, patience=0)
    target = SimulatedEvaluator(space, NonAdditive(failures=1.0), noise=0.02)
    with pytest.raises(NotSearchable, match=r"no placement could be measured: .*; enlarge search\.seconds .*or drop"):
        run_search(space, make_seeds(space), target, settings, Budget(4), tmp_path, PRINT, LineReporter())


class Timed:
    """A target on which a placement takes a second of its clock; what would begin too late is not measured."""

    def __init__(self, space: SearchSpace) -> None:
        self.now, self.target = 1000.0, SimulatedEvaluator(space, NonAdditive(layout=0.4))

    def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome | None]:
        outcomes: list[Outcome | None] = []
        for placement in placements:
            late = self.now >= until
            self.now += not late
            outcomes.append(None if late else self.target.outcome(placement))
        return outcomes

    def search(self, directory: Path, seconds: float, tuned_s: float | None = None) -> SearchRecord:
        def tuner(state: SearchState) -> Settings:
            self.now += tuned_s or 0.0
            return ga

        ga = Settings(population=8, offspring=5, climb=0, patience=0)
        told = (directory, PRINT, LineReporter(), None if tuned_s is None else tuner, lambda: self.now)
        space = self.target.space
        return run_search(space, make_seeds(space), self, ga, Budget(seconds=seconds), *told)


def test_a_search_whose_target_had_no_more_time_does_nothing_more_when_it_goes_on(
    space: SearchSpace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, save = Timed(space), checkpoint.save

    def slow_save(*given: Any) -> None:
        save(*given)
        target.now += 0.25  # what lies between generations is the search's time too

    monkeypatch.setattr(checkpoint, "save", slow_save)
    found = target.search(tmp_path, 20.6)
    assert found.state.evaluations == 20
    assert found.state.pending
    target.now += 500.0
    assert target.search(tmp_path, 20.6).state == found.state


def test_a_search_that_goes_on_has_the_time_that_was_left(space: SearchSpace, tmp_path: Path) -> None:
    target = Timed(space)
    assert target.search(tmp_path, 9.5).state.evaluations == 10
    target.now += 500.0
    assert target.search(tmp_path, 20.5).state.evaluations == 21


def test_tuning_takes_none_of_the_time_of_a_search(space: SearchSpace, tmp_path: Path) -> None:
    untuned, tuned = (
        Timed(space).search(made(tmp_path / str(seconds)), 20.5, seconds).state for seconds in (0.0, 500.0)
    )
    assert (tuned.evaluations, tuned.seconds) == (untuned.evaluations, untuned.seconds) == (21, 21.0)
