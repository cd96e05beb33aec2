"""Tuning finds settings in range, goes on where it stopped and reports each trial."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import optuna
import pytest

from collage_evo.errors import ConfigError
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.tuning import TrialReport, tune
from collage_evo.testing.spaces import make_space, resnet_like

RANGES: dict[str, dict[str, Any]] = {
    "population": {"low": 4, "high": 12, "step": 2},
    "mutation_rate": {"low": 0.1, "high": 1.0},
    "screen_factor": {"low": 1, "high": 8, "log": True},
    "tournament": {"choices": [2, 3, 5]},
}
SMALL = GaSettings(population=8, offspring=4, screen_factor=4)


@pytest.fixture(scope="module")
def space() -> SearchSpace:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return make_space(resnet_like(1), random.Random(5))


def run(space: SearchSpace, folder: Path, trials: int, **others: Any) -> tuple[GaSettings, list[TrialReport]]:
    reports: list[TrialReport] = []
    ranges = others.pop("ranges", RANGES)
    best = tune(
        space, f"sqlite:///{folder}/tune.db", "ga", trials, ranges, 20, (0, 1), reports.append, SMALL, **others
    )
    return best, reports


def test_tunes_within_the_ranges_and_resumes(space: SearchSpace, tmp_path: Path) -> None:
    best, reports = run(space, tmp_path, 4)
    assert [report.finished for report in reports] == [1, 2, 3, 4]
    assert best.population in range(4, 13, 2)
    assert 0.1 <= best.mutation_rate <= 1
    assert best.tournament in (2, 3, 5)
    assert (best.offspring, best.seeded, best.patience) == (SMALL.offspring, SMALL.seeded, SMALL.patience)
    _, more = run(space, tmp_path, 6)
    assert [report.finished for report in more] == [5, 6]
    again, none = run(space, tmp_path, 6)
    assert none == []
    assert isinstance(again, GaSettings)


def test_default_is_tried_first(space: SearchSpace, tmp_path: Path) -> None:
    best, reports = run(space, tmp_path, 1)
    assert best == SMALL
    assert reports[0].gap is not None


def test_trials_of_a_killed_process_do_not_count(space: SearchSpace, tmp_path: Path) -> None:
    run(space, tmp_path, 1)
    study = optuna.load_study(study_name="ga", storage=f"sqlite:///{tmp_path}/tune.db")
    study.ask()  # never told: what a kill leaves behind
    _, reports = run(space, tmp_path, 2)
    assert [report.finished for report in reports] == [2]
    states = [trial.state for trial in study.get_trials()]
    assert states.count(optuna.trial.TrialState.FAIL) == 1
    assert optuna.trial.TrialState.RUNNING not in states


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"populaton": {"low": 1, "high": 2}}, "tune.populaton is no setting"),
        ({"population": {"low": 4}}, "tune.population must be"),
        ({"population": {"low": 4, "high": 8, "logg": True}}, "tune.population must be"),
    ],
)
def test_wrong_ranges_are_named(
    space: SearchSpace, tmp_path: Path, ranges: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(space, tmp_path, 1, ranges=ranges)
