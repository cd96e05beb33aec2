"""A sweep tries whole runs over any keys, goes on after a kill, and ends with a table and plots."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import optuna
import pytest

from collage_evo.commands import sweep
from collage_evo.config import Config, changed, load_config, parse_config
from collage_evo.errors import ConfigError, InputError
from collage_evo.hardware.slots import usable_cores
from collage_evo.report.progress import LineReporter
from collage_evo.report.study import Trials
from collage_evo.run.directory import reopen_run
from tests.cli.commands import collage
from tests.support.models import chain
from tests.support.quick import QUICK_ALL_CORES, options
from tests.support.typed import not_none

SPACE = {"search.ga.population": {"choices": [8, 16]}, "target.threads": {"low": 1, "high": 2}}


def config_of(**keys: Any) -> Config:
    data = {"model": {"source": "builtin:squeezenet"}, "sweep": {"space": SPACE, "trials": 4, **keys}}
    return parse_config(data, (), "test")


class Runs:
    """Stands in for ``result_of``: a speedup that depends on the configuration, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.dies: BaseException | None = None

    def __call__(self, config: Config, directory: Path, reporter: object) -> Any:
        asked = (directory.name, config.search.ga.population, config.target.threads)
        assert (directory / "config.yaml").exists()
        if self.dies is not None and len(self.asked) == 2:
            error, self.dies = self.dies, None
            self.asked.append(asked)
            raise error
        self.asked.append(asked)
        speedup = 1 + asked[1] / 100 + asked[2] / 10
        return SimpleNamespace(
            candidate_speedup=SimpleNamespace(estimate=speedup), best=SimpleNamespace(median_ms=10 / speedup)
        )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    stand_in = Runs()
    monkeypatch.setattr(sweep, "result_of", stand_in)
    return stand_in


def run_sweep(config: Config, directory: Path) -> Trials:
    return sweep.run_sweep(config, directory, LineReporter())


def test_grid_tries_every_point_once_and_writes_plots(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / ".replaced").mkdir()  # the sweep that it overwrites
    found = run_sweep(config_of(sampler="grid", trials=10), tmp_path)
    assert not (tmp_path / ".replaced").exists()
    assert sorted((p, t) for _, p, t in runs.asked) == [(8, 1), (8, 2), (16, 1), (16, 2)]
    assert found.trials[0].params == {"search.ga.population": 16, "target.threads": 2}
    assert found.trials[0].value == pytest.approx(1.36)
    assert {"history.png", "parallel.png", "importance.png", "study.db"} <= set(os.listdir(tmp_path))


def test_values_of_the_policy_are_varied_as_other_keys_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[tuple[float, int]] = []

    def run(config: Config, directory: Path, reporter: object) -> Any:
        tried.append((config.policy.race_level, config.policy.cuts))
        assert reopen_run(directory).policy == config.policy
        return SimpleNamespace(candidate_speedup=SimpleNamespace(estimate=1.0 + config.policy.cuts / 100))

    monkeypatch.setattr(sweep, "result_of", run)
    space = {"policy.race_level": {"choices": [0.9, 0.98]}, "policy.cuts": {"low": 8, "high": 9}}
    best = run_sweep(config_of(space=space, sampler="grid"), tmp_path).trials[0]
    assert sorted(tried) == [(0.9, 8), (0.9, 9), (0.98, 8), (0.98, 9)]
    assert best.params["policy.cuts"] == 9


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_latency_is_minimised(runs: Runs, tmp_path: Path, sampler: str) -> None:
    values = [trial.value for trial in run_sweep(config_of(sampler=sampler, metric="latency"), tmp_path).trials]
    assert values == sorted(values)
    assert len(values) == len(runs.asked) == 4


def test_a_killed_trial_goes_on_on_the_cores_of_the_process_that_takes_it_up(runs: Runs, tmp_path: Path) -> None:
    first, second = (changed(config_of(), {"target.cores": cores}, "test") for cores in ([0, 1], [2, 3]))
    runs.dies = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(first, tmp_path)
    assert [trial.state for trial in run_sweep(second, tmp_path).trials].count("complete") == 4
    trials = tmp_path / "trials"
    used = {trial.name: load_config(str(trial / "config.yaml")).target.cores for trial in trials.iterdir()}
    assert used == {"0000": [0, 1], "0001": [0, 1], "0002": [2, 3], "0004": [2, 3]}


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_a_killed_trial_goes_on_in_its_own_directory(runs: Runs, tmp_path: Path, sampler: str) -> None:
    runs.dies = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(config_of(sampler=sampler), tmp_path)
    found = run_sweep(config_of(sampler=sampler), tmp_path)
    assert runs.asked[3] == runs.asked[2], "it comes before what was not begun"
    assert runs.asked.count(runs.asked[2]) == 2
    assert len(runs.asked) == 5
    assert sorted(trial.state for trial in found.trials) == ["complete"] * 4 + ["fail"]
    assert len({asked for asked in runs.asked}) == 4


def test_a_trial_that_came_to_its_end_is_not_tried_again_whatever_ends_the_sweep_then(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)  # while it lets go of what nobody needs any more
        with pytest.raises(KeyboardInterrupt):
            run_sweep(config_of(), tmp_path)
    assert [trial.state for trial in run_sweep(config_of(), tmp_path).trials] == ["complete"] * 4
    assert len(runs.asked) == 4


def test_a_failing_run_is_a_failed_trial_with_its_reason(runs: Runs, tmp_path: Path) -> None:
    runs.dies = InputError("no placement could be measured")
    found = run_sweep(config_of(), tmp_path)
    assert len(runs.asked) == 4
    assert [trial.state for trial in found.trials].count("fail") == 1
    study = optuna.load_study(study_name=sweep.STUDY, storage=f"sqlite:///{tmp_path}/study.db")
    assert study.trials[2].user_attrs["error"] == "no placement could be measured"
    run_sweep(config_of(), tmp_path)
    assert len(runs.asked) == 4


def test_a_trial_that_another_process_ends_meanwhile_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study()
    other = not_none(sweep._next_trial(study, config_of(trials=1)))
    read = study.get_trials

    def read_and_end(deepcopy: bool = True, states: Any = None) -> list[optuna.trial.FrozenTrial]:
        trials = read(deepcopy=True, states=states)
        if not study._storage.get_trial(other._trial_id).state.is_finished():
            study.tell(other, 1.0)
        return trials

    monkeypatch.setattr(study, "get_trials", read_and_end)
    assert sweep._next_trial(study, config_of(trials=1)) is None


def test_a_trial_about_to_be_told_as_failed_counts_once() -> None:
    study = optuna.create_study()
    failing = not_none(sweep._next_trial(study, config_of(trials=2)))
    failing.set_user_attr(sweep.ERROR, "no placement could be measured")
    assert sweep._next_trial(study, config_of(trials=2)) is not None
    assert sweep._next_trial(study, config_of(trials=2)) is None


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "sweep.space is empty"),
        ({"search.ga.populaton": {"choices": [1]}}, "did you mean search.ga.population"),
        (
            {"search.ga.population": {"choices": [0]}},
            "search.ga.population: input should be greater than or equal to 2",
        ),
        ({"search.seconds": {"low": 3}}, "sweep.space.search.seconds must be"),
    ],
)
def test_wrong_spaces_are_named(runs: Runs, tmp_path: Path, space: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_sweep(config_of(space=space), tmp_path)
    assert not runs.asked


def test_a_grid_needs_steps(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a grid needs choices, or low, high and step"):
        run_sweep(config_of(sampler="grid", space={"search.seconds": {"low": 1.5, "high": 3}}), tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"parallel": 99}, r"core\(s\) hold .* trial\(s\) of 2 thread\(s\) without two timing on one core"),
        ({"parallel": 2, "space": {"target.cores": {"choices": [[0], [1]]}}}, "without two timing on one core"),
    ],
)
def test_more_trials_than_cores_hold_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_sweep(config_of(**keys), tmp_path)


@pytest.mark.slow
def test_trials_at_a_time_have_cores_and_directories_of_their_own_and_go_on_after_a_kill(tmp_path: Path) -> None:
    if len(usable_cores()) < 2:
        pytest.skip("a single core")
    onnx.save(chain(1), tmp_path / "tiny.onnx")
    space = {"search.ga.population": {"low": 4, "high": 40}}
    trials_of = {"trials": 2, "parallel": 2, "sampler": "random", "space": space}
    settings = {**QUICK_ALL_CORES, "final.speeds": "searched", "sweep": trials_of}
    asked = ["sweep", "tiny.onnx", "--out", "sweep"]
    command = [sys.executable, "-m", "collage_evo", *asked, *options(settings)]
    killed = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    trials = tmp_path / "sweep" / "trials"
    while len(list(trials.glob("*/config.yaml"))) < 2:
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    done = collage(*asked, "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    study = optuna.load_study(study_name=sweep.STUDY, storage=f"sqlite:///{tmp_path}/sweep/study.db")
    complete = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert len(complete) == 2, [trial.user_attrs for trial in study.trials]
    assert {trial.user_attrs["folder"] for trial in complete} == {int(path.name) for path in trials.iterdir()}
    used = [load_config(str(path)).target.cores for path in trials.glob("*/config.yaml")]
    first, second = sorted({tuple(cores) for cores in used})
    assert not set(first) & set(second)
