"""A search that is killed again and again ends exactly where an undisturbed one ends."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from collage_evo.codec import to_json
from collage_evo.config import Settings
from collage_evo.errors import InputError, NotSearchable
from collage_evo.genome.search import checkpoint
from collage_evo.genome.search.checkpoint import Fingerprint
from collage_evo.genome.search.seeds import make_seeds
from collage_evo.genome.search.settings import Budget
from collage_evo.genome.search.state import SearchState
from collage_evo.genome.space import SearchSpace
from collage_evo.report.progress import LineReporter
from collage_evo.run.search import found_before, run_search
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_space, resnet_like

PRINT = Fingerprint("model", "cpu, 1 thread", ("a 1", "b 2"), "matches")
KILLS = 50


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


def test_killed_fifty_times_equals_uninterrupted(space: SearchSpace, tmp_path: Path) -> None:
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


def test_what_a_search_found_is_read_again_without_searching(space: SearchSpace, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no usable checkpoint"):
        found_before(space, tmp_path, PRINT)
    search(space, tmp_path, evaluations=20)
    before = kept(tmp_path)
    found = found_before(space, tmp_path, PRINT)
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
    with pytest.raises(NotSearchable, match=r"no placement could be measured: .*; enlarge search\.seconds or drop"):
        run_search(space, make_seeds(space), target, settings, Budget(4), tmp_path, PRINT, LineReporter())
