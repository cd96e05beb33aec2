"""A run directory says what kind of run it holds, and goes on as what it was."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collage_evo.commands import tune
from collage_evo.config import Config, changed, load_config, parse_config
from collage_evo.errors import CollageError, ConfigError, InputError, SystemRefuses
from collage_evo.genome.settings import Budget
from collage_evo.report.places import COMMAND
from collage_evo.report.progress import LineReporter
from collage_evo.run.budget import Pace, search_budget
from collage_evo.run.context import Room
from collage_evo.run.deadline import TimeIsOver
from collage_evo.run.directory import (
    KINDS,
    enlarge_budget,
    give_back,
    kind_of_run,
    move_run,
    reopen_run,
    require_same_target,
    save_config,
    start_run,
    target_of,
    telling_to_resume,
    undone_without_answer,
)
from collage_evo.run.recorded import ended_run
from collage_evo.run.records import Plan, Records
from collage_evo.run.search import Searched
from collage_evo.run.store import Store
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import Fingerprint
from collage_evo.search.evolution.state import new_state
from collage_evo.yaml_values import Overrides


def enlarged(directory: Path, overrides: Overrides) -> Config:
    return enlarge_budget(directory, reopen_run(directory), overrides)


def config() -> Config:
    return parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_as_the_kind_that_it_was(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "run"
    start_run(directory, config(), kind=kind)
    assert (reopen_run(directory), kind_of_run(directory)) == (config(), kind)
    enlarged(directory, ["search.evaluations=1000000"])
    save_config(directory, config())
    assert kind_of_run(directory) == kind


def test_a_sweep_does_not_go_on_as_a_run(tmp_path: Path) -> None:
    start_run(tmp_path / "swept", config(), kind="sweep")
    with pytest.raises(InputError, match=f"is a sweep, not a run: continue with: {re.escape(COMMAND)} resume"):
        start_run(tmp_path / "swept", config(), resume=True)
    assert start_run(tmp_path / "swept", config(), resume=True, kind="sweep") == config()


def test_to_go_on_and_to_delete_contradict_each_other(tmp_path: Path) -> None:
    start_run(tmp_path / "run", config())
    with pytest.raises(InputError, match="give only one of them"):
        start_run(tmp_path / "run", config(), resume=True, overwrite=True)
    assert reopen_run(tmp_path / "run") == config(), "it is still there"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"target.threads": 2}, "has target.threads=1, not 2"),
        ({"accuracy.budget": "exact"}, "has accuracy.budget=0.02, not exact"),
        ({"model.source": "other.onnx"}, "has model.source=builtin:squeezenet, not other.onnx"),
        ({"backends.tvm.trials": 8}, "has backends.tvm.trials=None, not 8"),
        ({"model.shapes": {"x": [1, 3]}}, r"has model.shapes.x=None, not \[1, 3\]"),
    ],
)
def test_a_run_does_not_go_on_as_another_one(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    start_run(tmp_path / "run", config())
    other = parse_config({"model": {"source": "builtin:squeezenet"}}, given, "test")
    with pytest.raises(ConfigError, match=f"{told}: choose another --out, or continue with: .* resume"):
        start_run(tmp_path / "run", other, resume=True)


def test_a_run_goes_on_by_the_command_that_it_began_with_whatever_was_set_since(tmp_path: Path) -> None:
    start_run(tmp_path / "run", changed(config(), {"target.threads": 2, "search.ga.population": 9}, "test"))
    again = {"search.seconds": 100.0, "search.ga.population": 8, "fitness.address": "tcp://elsewhere:1"}
    asked = parse_config({"model": {"source": "builtin:squeezenet"}}, again, "test")
    found = start_run(tmp_path / "run", asked, resume=True)
    assert (found.target.threads, found.search.seconds, found.search.ga.population) == (2, 100.0, 9)
    assert found.fitness.address == "tcp://elsewhere:1"


def test_a_run_whose_saved_configuration_has_keys_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    start_run(tmp_path / "run", config())
    saved = tmp_path / "run" / "config.yaml"
    saved.write_text(saved.read_text().replace("final:\n", "final:\n  turn_seconds: 0.1\n"))
    with pytest.raises(CollageError, match=r"final\.turn_seconds"):
        reopen_run(tmp_path / "run")


@pytest.mark.parametrize("content", [None, "", "{}", '{"kind": "walk"}', '["walk"]', '{"kind": ["run"]}'])
def test_a_directory_that_does_not_say_is_not_taken_for_a_run(tmp_path: Path, content: str | None) -> None:
    directory = tmp_path / "run"
    start_run(directory, config(), kind="sweep")
    (directory / "run.json").unlink()
    if content is not None:
        (directory / "run.json").write_text(content)
    with pytest.raises(InputError, match=r"run\.json (is damaged|cannot be read) .*--overwrite"):
        kind_of_run(directory)


def test_a_run_that_goes_on_was_given_no_more_than_when_it_began(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    given = parse_config({"model": {"source": "builtin:squeezenet"}, "search": {"evaluations": 9}}, (), "test")
    start_run(directory, given)
    for again in (reopen_run(directory), start_run(directory, given, resume=True)):
        assert again == given
        assert again.search.seconds is None
    assert enlarged(directory, ["search.seconds=100"]).search.seconds == 100
    assert reopen_run(directory).search.seconds == 100
    with pytest.raises(ConfigError, match=r"-s search\.seconds=99: the run had search\.seconds=100; .* enlarge"):
        enlarged(directory, {"search.seconds": 99})


def test_the_time_that_a_run_decided_may_be_enlarged_only_and_is_not_saved_as_given(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    start_run(directory, config())
    store = Store(directory)
    assert search_budget(store, config().search, Pace().searched_by_s - 30.0, {}) == Budget(None, 30.0)
    assert search_budget(store, reopen_run(directory).search, 0.0, {}) == Budget(None, 30.0), "decided once"
    assert reopen_run(directory) == config()
    with pytest.raises(ConfigError, match=r"the run had search\.seconds=30"):
        enlarged(directory, ["search.seconds=29"])
    longer = enlarged(directory, ["search.seconds=31"])
    assert search_budget(store, longer.search, 0.0, {}) == Budget(None, 31.0)


def test_what_was_given_as_nothing_stays_so_whatever_the_effort_says(tmp_path: Path) -> None:
    given = changed(config(), {"effort": "quick", "search.seconds": None}, "test")
    start_run(tmp_path / "run", given)
    again = reopen_run(tmp_path / "run")
    assert again.search.seconds is None
    assert again == given


def test_a_search_that_is_moved_goes_on_on_the_other_cores(tmp_path: Path) -> None:
    start_run(tmp_path, changed(config(), {"target.cores": [0, 1]}, "test"))
    move_run(tmp_path, [1, 2])
    assert reopen_run(tmp_path).target.cores == [1, 2]


def test_a_search_goes_on_on_other_cores_and_is_refused_early_on_another_number_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3, 5})
    checkpoint.save(tmp_path, new_state(0), Fingerprint("m", target_of(config()), (), "x"))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 7})
    require_same_target(tmp_path, config())
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {7})
    with pytest.raises(InputError, match=r"cannot resume .* on 2 core\(s\) and is now .* on 1 core\(s\)"):
        require_same_target(tmp_path, config())


def test_a_tuning_that_goes_on_measures_no_more_though_it_chose_a_larger_population(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    @contextlib.contextmanager
    def opened(config: Config, *_: object) -> Iterator[Records]:
        asked.append(config.search.evaluations)
        yield Records(Plan(()), {Searched: None})

    monkeypatch.setattr(tune, "open_records", opened)
    for name in ("open_study", "write_plots", "read_trials"):
        monkeypatch.setattr(tune, name, lambda *_: None)
    for population in (8, 40):
        tune.run_tune(changed(config(), {"search.ga.population": population}, "test"), tmp_path, LineReporter())
    assert asked == [8, 8]


def test_nobody_is_told_to_go_on_with_a_run_that_does_not(tmp_path: Path) -> None:
    start_run(tmp_path, config())
    with pytest.raises(InputError, match=r"has not ended: continue it with .* resume"):
        ended_run(tmp_path)
    (tmp_path / "checkpoint.json").write_text("{}")
    with pytest.raises(InputError, match=r"work, from which .*, is missing or incomplete: search again with"):
        ended_run(tmp_path)
    (tmp_path / "work").mkdir()
    with pytest.raises(InputError, match=r"work, from which .*, is missing or incomplete: search again with"):
        ended_run(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_overwriting_removes_all_that_a_run_made_and_nothing_else(tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    start_run(run, config(), kind=kind)
    made = [run / name for name in ("tune.db", "study.db", "checkpoint.prev.json", "result.json", "worker-0.log")]
    own = [run / name for name in ("best.collage.zip", "checkpoint_mine.json", "notes.txt")]
    for path in (*made, *own):
        path.write_text("{}")
    start_run(run, config(), overwrite=True, kind=kind)
    assert not any(path.exists() for path in made)
    assert all(path.exists() for path in own)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"source": "missing.onnx"}}, r"missing\.onnx"),
        ({"model": {"source": "run/given/model.onnx"}}, "contains"),
        ({"data": {"source": "missing.npz"}}, "no data at"),
        ({"data": {"source": "run/feeds.py:samples"}}, "contains"),
        ({"search": {"like": "run"}}, "contains"),
        ({"target": {"threads": 64}}, "64 threads on"),
        ({"backends": {"use": ["missing"]}}, "missing"),
    ],
)
def test_overwriting_for_a_run_that_cannot_begin_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("run")
    start_run(run, config())
    (run / "given").mkdir()
    for name in ("given/model.onnx", "feeds.py", "result.json"):
        (run / name).write_text("{}")
    wanted = parse_config({"model": {"source": "builtin:squeezenet"}, **changes}, (), "test")
    with pytest.raises(CollageError, match=message):
        start_run(run, wanted, overwrite=True)
    with pytest.raises(InputError, match="contains"):
        start_run(run, config(), overwrite=True, source="run/config.yaml")
    assert (run / "result.json").exists()


@pytest.mark.parametrize("source", ["builtin:images", "feeds.npz", "feeds.py:samples", "folder"])
def test_data_of_each_kind_are_there_for_a_run_that_overwrites(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("feeds.npz", "feeds.py"):
        Path(name).touch()
    Path("folder").mkdir()
    wanted = changed(config(), {"data.source": source}, "test")
    for _ in range(2):
        start_run(Path("run"), wanted, overwrite=True)
    assert reopen_run(Path("run")).data.source == source


def contents(directory: Path) -> dict[Path, str]:
    return {path.relative_to(directory): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_a_used_directory_is_told_only_to_a_run_that_could_begin(tmp_path: Path) -> None:
    start_run(tmp_path, config())
    absent = parse_config({"model": {"source": "absent.onnx"}}, (), "test")
    with pytest.raises(CollageError, match=r"absent\.onnx"):
        start_run(tmp_path, absent)
    with pytest.raises(InputError, match="is in use"):
        start_run(tmp_path, config())


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A run with an answer."""
    run = tmp_path / "run"
    start_run(run, config())
    for name in ("best.collage", "work"):
        (run / name).mkdir()
        (run / name / "one").write_text(name)
    return run


ENDS = [InputError("no"), OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), TimeIsOver()]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_a_run_that_is_overwritten_stays_unless_the_new_one_has_an_answer(ended: Path, end: BaseException) -> None:
    before = contents(ended)
    start_run(ended, changed(config(), {"target.threads": 2}, "test"), overwrite=True)
    (ended / "baselines.json").write_text("new")
    with pytest.raises(type(end)), undone_without_answer(ended):
        raise end
    assert contents(ended) == before


def test_a_kill_before_the_first_answer_loses_no_run_that_was_overwritten(ended: Path) -> None:
    before = contents(ended)
    for _ in range(2):
        start_run(ended, config(), overwrite=True)  # killed
        (ended / "work").mkdir()
    assert give_back(ended)
    assert contents(ended) == before


def test_a_kill_while_a_run_is_set_aside_loses_nothing_of_it(ended: Path) -> None:
    before = contents(ended)
    (ended / ".replaced").mkdir()
    (ended / "best.collage").rename(ended / ".replaced" / "best.collage")
    assert give_back(ended)
    assert contents(ended) == before


@pytest.mark.parametrize("left", ["best.collage", "profiles/0/best.collage", "baselines.json"])
def test_a_full_disk_takes_nothing_away_that_was_measured_and_the_run_says_how_it_goes_on(
    tmp_path: Path, left: str
) -> None:
    start_run(tmp_path, config())
    (tmp_path / left).mkdir(parents=True)
    told = f"full; make room on the disk .* then continue with: {re.escape(COMMAND)} resume"
    for error in (OSError(errno.ENOSPC, "full"), SystemRefuses("full; make room on the disk of a process")):
        with pytest.raises(InputError, match=told), undone_without_answer(tmp_path), telling_to_resume(tmp_path):
            raise error
    assert (tmp_path / left).exists()


def test_a_run_that_fails_before_it_measures_leaves_its_name_free(tmp_path: Path) -> None:
    start_run(tmp_path, config())
    with pytest.raises(OSError, match="full"), undone_without_answer(tmp_path), telling_to_resume(tmp_path):
        raise OSError(errno.ENOSPC, "full")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("weights_gb", "given", "room"),
    [(0.1, (), Room(8.0, 126.0, 6.0)), (3.0, (), Room(18.0, 300.0, 12.0)),
     (3.0, ("fitness.memory_gb=2", "fitness.timeout_s=9", "cache.max_gb=1"), Room(2.0, 9.0, 1.0))],
)  # fmt: skip
def test_limits_follow_the_model_s_size_unless_they_are_given(
    weights_gb: float, given: tuple[str, ...], room: Room
) -> None:
    config = load_config("builtin:bert", given)
    assert Room.of(config, int(weights_gb * 1e9)) == room
    in_4_gib = Room.of(config, int(weights_gb * 1e9), memory_bytes=4 * 2**30)
    assert in_4_gib.memory_gb == (2.0 if given else 3.0)
    assert in_4_gib.in_turns == (weights_gb > 1)
