"""What a directory from elsewhere names is run only if this person named it before, or says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Target
from collage_evo.cli.search import resume_run
from collage_evo.commands import pick
from collage_evo.commands.compared import subjects
from collage_evo.config import Config, parse_config
from collage_evo.errors import InputError
from collage_evo.measure.build.cache import PieceCache
from collage_evo.measure.build.compiler import Compiler
from collage_evo.report.progress import LineReporter
from collage_evo.run.directory import start_run
from collage_evo.run.trusted import functions_of, note_functions, require_noted
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
    with pytest.raises(InputError, match=r"here names the function .*score\.py:score, .* read it, .* use --trust"):
        require_noted([metric], Path("here"))
    require_noted([metric], Path("here"), trust=True)
    with pytest.raises(InputError):
        require_noted([metric], Path("here"))  # once is once
    monkeypatch.chdir(tmp_path / "foreign")
    start_run(tmp_path / "run", named("score.py:score"))
    require_noted([metric, "top1", ""], Path("here"))
    start_run(tmp_path / "again", named(metric))
    assert (state / "functions").read_text().count("score.py") == 1
    assert (state / "functions").stat().st_mode & 0o077 == 0
    with pytest.raises(InputError, match=r"score\.py:other"):
        require_noted([metric.replace(":score", ":other")], Path("here"))


def test_data_by_a_function_are_a_function_too(metric: str) -> None:
    config = parse_config({"model": {"source": "m.onnx"}, "data": {"source": metric}}, (), "test")
    assert functions_of(config) == [metric]
    assert functions_of(named("top1")) == []


def test_where_nothing_can_be_noted_a_run_begins_and_the_function_is_asked_for(
    tmp_path: Path, metric: str, state: Path
) -> None:
    state.parent.mkdir()
    state.write_text("no directory")
    start_run(tmp_path / "run", named(metric))
    with pytest.raises(InputError, match="--trust"):
        require_noted([metric], Path("here"))


def test_an_artifact_from_elsewhere_runs_no_function_unasked(tmp_path: Path, artifact: Path, metric: str) -> None:
    asked = (artifact, tmp_path / "m.onnx", str(tmp_path / "x.npz"))
    with pytest.raises(InputError, match=r"best\.collage names the function .*score\.py:score"):
        subjects(*asked)
    assert not (tmp_path / RAN).exists()
    assert subjects(*asked, trust=True)[0].config.accuracy.metric == metric
    note_functions([metric])
    assert subjects(*asked)[0].config.accuracy.metric == metric


def test_nor_does_a_run_from_elsewhere(
    tmp_path: Path, metric: str, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "foreign" / "run"
    start_run(directory, named(metric))
    shutil.rmtree(state)  # another person's run
    monkeypatch.setattr(pick, "_finished", lambda place: named(metric))
    asks: list[Callable[[], object]] = [
        lambda: resume_run(directory),
        lambda: pick.pick_answer(directory, "0.1", LineReporter()),
        lambda: start_run(directory, parse_config({"model": {"source": "any.onnx"}}, (), "test"), resume=True),
    ]
    for ask in asks:
        with pytest.raises(InputError, match=r"names the function .*score\.py:score.*--trust"):
            ask()
    assert not (tmp_path / RAN).exists()
    assert start_run(directory, named(metric), resume=True).accuracy.metric == metric, "who names it again knows it"
