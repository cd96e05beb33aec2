"""Tuning finds settings in range on learned targets, goes on where it stopped, and is done only once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from collage_evo.errors import ConfigError
from collage_evo.genome.encoding import decode
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.seeds import Seeds, make_seeds
from collage_evo.search.evolution.state import SearchState, new_state
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from collage_evo.search.tuning.learned_target import LearnedTarget
from collage_evo.search.tuning.tuning import CHOSEN, STUDY, TunePlan, tune
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_space, resnet_like

RANGES: dict[str, dict[str, Any]] = {
    "population": {"low": 4, "high": 12, "step": 2},
    "explore": {"low": 0.0, "high": 1.0},
    "screen_factor": {"low": 1, "high": 8, "log": True},
    "tournament": {"choices": [2, 3, 5]},
}
SMALL = GaSettings(population=8, offspring=4, screen_factor=4, climb=0, program_share=0.1)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return make_space(resnet_like(1), random.Random(5))


@pytest.fixture(scope="module")
def seeds(space: SearchSpace) -> Seeds:
    return make_seeds(space)


@pytest.fixture(scope="module")
def state(space: SearchSpace, seeds: Seeds) -> SearchState:
    target = SimulatedEvaluator(space, NonAdditive(layout=0.4))
    return Evolution(space, target, SMALL, Budget(8), lambda: 0.0, tuple(seeds)).step(new_state(0))


@pytest.fixture
def run(space: SearchSpace, seeds: Seeds, state: SearchState, tmp_path: Path) -> Any:
    def run(trials: int, ranges: dict[str, dict[str, Any]] = RANGES, **others: Any) -> Any:
        reports: list[float] = []
        plan = TunePlan(trials, others.pop("seconds", 1e9), evaluations=14, targets=2)
        on_trial = others.pop("on_trial", reports.append)
        best = tune(space, seeds, state, plan, tmp_path / "tune.db", ranges, SMALL, on_trial, **others)
        return best, reports

    return run


def study_of(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name=STUDY, storage=f"sqlite:///{folder}/tune.db")


def test_tunes_within_the_ranges_once(run: Any, tmp_path: Path) -> None:
    best, reports = run(4)
    assert [trial.number for trial in study_of(tmp_path).trials] == [0, 1, 2, 3]
    assert reports == sorted(reports, reverse=True)
    assert len(reports) == 4
    assert best.population in range(4, 13, 2)
    assert 0 <= best.explore <= 1
    assert best.tournament in (2, 3, 5)
    assert (best.offspring, best.patience, best.climb) == (SMALL.offspring, SMALL.patience, SMALL.climb)
    assert study_of(tmp_path).user_attrs[CHOSEN] == study_of(tmp_path).best_params
    again, none = run(9)
    assert (again, none) == (best, [])


def test_default_is_tried_first(run: Any) -> None:
    best, reports = run(1)
    assert best == SMALL
    assert 0 < reports[0] <= 1


def test_interrupted_after_any_trial_equals_uninterrupted(run: Any, tmp_path: Path) -> None:
    whole, _ = run(4)
    expected = [trial.params for trial in study_of(tmp_path).trials]
    optuna.delete_study(study_name=STUDY, storage=f"sqlite:///{tmp_path}/tune.db")

    class Killed(BaseException):
        pass

    def kill(best: float) -> None:
        raise Killed

    for _ in range(4):
        with pytest.raises(Killed):
            run(4, on_trial=kill)
    assert run(4)[0] == whole
    assert [trial.params for trial in study_of(tmp_path).trials] == expected


def test_trials_of_a_killed_process_do_not_count(
    run: Any, space: SearchSpace, seeds: Seeds, state: SearchState, tmp_path: Path
) -> None:
    optuna.create_study(study_name=STUDY, storage=f"sqlite:///{tmp_path}/tune.db").ask()
    _, reports = run(2)
    states = [trial.state for trial in study_of(tmp_path).trials]
    assert (len(states), len(reports)) == (3, 2)
    assert states[0] == optuna.trial.TrialState.FAIL
    assert optuna.trial.TrialState.RUNNING not in states


def test_learned_targets_agree_with_what_was_measured_and_differ_elsewhere(
    space: SearchSpace, state: SearchState
) -> None:
    features = FeatureMap(space)
    known = list(state.evaluated.values())
    placements = [decode(found.genome, space) for found in known]
    latency = [found.outcome.latency_ms or 0.0 for found in known]
    surrogate = Surrogate(features, [features.vector(p) for p in placements], latency)
    one, other = (LearnedTarget(features, surrogate.sample(np.random.default_rng(seed))) for seed in (0, 1))
    for placement, ms in zip(placements, latency, strict=True):
        assert one.latency_ms(placement) == pytest.approx(ms, rel=0.1)
    assert one.evaluate(placements)[0].latency_ms == one.latency_ms(placements[0])
    assert not (one.weights == other.weights).all()


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"populaton": {"low": 1, "high": 2}}, "tune.space.populaton cannot be tuned"),
        ({"hall_of_fame": {"low": 1, "high": 2}}, "tune.space.hall_of_fame cannot be tuned"),
        ({"population": {"low": 4}}, "tune.space.population must be"),
        ({"population": {"low": 4, "high": 8, "logg": True}}, "tune.space.population must be"),
        ({"population": {"low": 9, "high": 8}}, "tune.space.population must be"),
    ],
)
def test_wrong_ranges_are_named(run: Any, ranges: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(1, ranges)
