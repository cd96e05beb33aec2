"""What a directory from elsewhere leads to is used only if this person named it before, or says so."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Target
from collage_evo.cli.search import resume_run
from collage_evo.commands import pick
from collage_evo.commands.compared import subjects
from collage_evo.config import Config, parse_config
from collage_evo.config_model import Section
from collage_evo.errors import InputError
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import start_run
from collage_evo.run.recorded import read_runs
from collage_evo.run.trusted import OUTWARD, note, outward, require_noted
from collage_evo.runtime.artifact import Profile, write_artifact
from tests.support.models import chain

RAN = "ran"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "collage_evo"


@pytest.fixture
def metric(tmp_path: Path) -> str:
    """A function whose file leaves a trace when it is run."""
    file = tmp_path / "foreign" / "score.py"
    file.parent.mkdir()
    file.write_text(f"open({str(tmp_path / RAN)!r}, 'w')\ndef score(outputs, items):\n    return 1.0\n")
    return f"{file}:score"


@pytest.fixture
def artifact(tmp_path: Path, metric: str) -> Path:
    """An artifact that was made by ``metric``, and ``m.onnx`` beside it."""
    model = chain(1)
    onnx.save(model, tmp_path / "m.onnx")
    program = Compiler(Target(), PieceCache(tmp_path / "cache", 10**9)).whole(model, "onnxruntime", "default")
    info = {"accuracy": {"metric": metric, "over": "all", "budget": 0.1, "error": 0.0}}
    write_artifact(tmp_path / "foreign" / "best.collage", [Profile(program, info)], Target())
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 4, 8, 8), np.float32), label=np.zeros(2))
    return tmp_path / "foreign" / "best.collage"


def named(metric: str) -> Config:
    return parse_config({"model": {"source": "any.onnx"}, "accuracy": {"metric": metric}}, (), "test")


def test_what_was_named_in_a_run_is_known_from_then_on_by_its_path(
    tmp_path: Path, metric: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_here = [f"accuracy.metric {metric}"]
    with pytest.raises(InputError, match=r"here would use .*: accuracy\.metric .*score\.py:score; .* --trust"):
        require_noted(named_here, Path("here"))
    require_noted(named_here, Path("here"), trust=True)
    with pytest.raises(InputError):
        require_noted(named_here, Path("here"))  # once is once
    monkeypatch.chdir(tmp_path / "foreign")
    start_run(tmp_path / "run", named("score.py:score"))
    require_noted(named_here, Path("here"))
    start_run(tmp_path / "again", named(metric))
    assert (state / "named").read_text().count("score.py") == 1
    assert (state / "named").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match=r"score\.py:other"):
        require_noted([metric.replace(":score", ":other")], Path("here"))


HARMLESS = {
    "accuracy.budget": "a number",
    "target.device": "one that an installed plug-in serves",
    "target.processor": "one of a list",
    "fitness.executor": "asked about by its address",
    "backends.use": "names of what is installed, all of which takes part by default",
    "output.dir": "of a new run only",
    "tune.space": "settings of the search",
    "sweep.space": "asked about by its choices",
}


def texts(section: type[Section], prefix: str = "") -> set[str]:
    """The keys whose values may be any text."""
    found = set[str]()
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= texts(kind, f"{prefix}{name}.")
        elif any(word in str(kind) for word in ("str", "Any", "Path")):
            found.add(f"{prefix}{name}")
    return found


def test_each_key_that_may_hold_any_text_is_asked_about_or_leads_nowhere() -> None:
    assert texts(Config) - {"model.shapes"} == {*OUTWARD, *HARMLESS} - {"fitness.executor"}


def test_what_leads_out_of_a_run_is_listed_and_what_lies_in_it_is_not(tmp_path: Path, metric: str) -> None:
    values = {
        "model": {"source": metric.partition(":")[0]},
        "data": {"source": str(tmp_path / "run" / "given")},
        "accuracy": {"metric": metric},
        "search": {"like": "missing"},
        "cache": {"dir": str(tmp_path / "run" / "cache")},
        "sweep": {"space": {"fitness": {"choices": [{"executor": "dask", "address": "tcp://far:1"}]}}},
    }
    (tmp_path / "run" / "given").mkdir(parents=True)
    assert outward(parse_config(values, (), "test"), tmp_path / "run") == {
        f"model.source {metric.partition(':')[0]}",
        f"accuracy.metric {metric}",
        f"cache.dir {tmp_path / 'run' / 'cache'}",
        "fitness.address tcp://far:1",
    }
    assert outward(named("top1"), tmp_path) == set()


def test_where_nothing_can_be_noted_a_run_begins_and_is_asked_about(
    tmp_path: Path, metric: str, state: Path
) -> None:
    state.parent.mkdir()
    state.write_text("no directory")
    start_run(tmp_path / "run", named(metric))
    with pytest.raises(InputError, match="--trust"):
        resume_run(tmp_path / "run")


def test_an_artifact_from_elsewhere_runs_no_function_unasked(tmp_path: Path, artifact: Path, metric: str) -> None:
    asked = (artifact, tmp_path / "m.onnx", str(tmp_path / "x.npz"))
    with pytest.raises(InputError, match=r"best\.collage would use .*score\.py:score"):
        subjects(*asked)
    assert not (tmp_path / RAN).exists()
    assert subjects(*asked, trust=True)[0].config.accuracy.metric == metric
    note([f"accuracy.metric {metric}"])
    assert subjects(*asked)[0].config.accuracy.metric == metric


LEADS: Mapping[str, Any] = {
    "accuracy.metric": "METRIC",
    "data.source": "METRIC",
    "fitness.address": "tcp://127.0.0.1:9",
    "cache.dir": "FOREIGN/cache",
    "model.source": "FOREIGN/score.py",
}


@pytest.mark.parametrize("key", [*LEADS, "compiled code", "link"])
def test_nor_does_a_run_from_elsewhere_lead_anywhere_unasked(
    tmp_path: Path, metric: str, state: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    directory = tmp_path / "foreign" / "run"
    value = str(LEADS.get(key)).replace("METRIC", metric).replace("FOREIGN", str(tmp_path / "foreign"))
    values = {key: value, **({"fitness.executor": "dask"} if key == "fitness.address" else {})}
    config = parse_config({"model": {"source": "builtin:squeezenet"}}, values if key in LEADS else (), "test")
    start_run(directory, config)
    shutil.rmtree(state)  # another person's run
    if key == "link":
        begun = json.loads((directory / "run.json").read_text())["name"]
        note([f"compiled code of the run {begun}"])
        (directory / "details.log").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(pick, "ended_run", lambda place: config)
    (directory / "work").mkdir(exist_ok=True)
    plain = parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test")
    asks: list[Callable[[], object]] = [
        lambda: resume_run(directory),
        lambda: pick.pick_answer(directory, "0.1", LineReporter()),
        lambda: start_run(directory, plain if key != "model.source" else config, resume=True),
    ]
    for ask in asks:
        with pytest.raises(InputError, match=rf"foreign/run would use .*{key}.*--trust"):
            ask()
        if key == "model.source":  # who names it again knows it
            break
    assert not (tmp_path / RAN).exists()


@pytest.mark.parametrize("name", ["details.log", "work/reference.npz"])
def test_a_run_with_what_is_no_plain_file_is_refused(tmp_path: Path, name: str) -> None:
    start_run(tmp_path / "run", named(""))
    (tmp_path / "run" / "work").mkdir()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(InputError, match=rf"{name} is no plain file"):
        resume_run(tmp_path / "run", trust=True)


def test_a_result_names_no_directory_outside_of_its_own(tmp_path: Path) -> None:
    start_run(tmp_path / "run", named(""))
    (tmp_path / "run" / "result.json").write_text('{"schema": 6, "profiles": [{"directory": "../other"}]}')
    with pytest.raises(InputError, match="outside of its directory"):
        read_runs(tmp_path / "run")
