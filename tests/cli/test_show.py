"""show tells again what a run found, from its files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collage_evo.answer.baselines import write_baselines
from collage_evo.answer.so_far import Evidence, SoFar
from collage_evo.cli.app import app
from collage_evo.cli.stop import end_in_time, resumable
from collage_evo.codec import to_plain
from collage_evo.config import parse_config
from collage_evo.errors import AnswerStays, InputError
from collage_evo.report.finished import RESULT, write_result
from collage_evo.report.places import COMMAND
from collage_evo.report.summary import LINES
from collage_evo.run.directory import save_run
from collage_evo.runtime.artifact import write_artifact
from collage_evo.runtime.manifest import Profile
from tests.run.test_publisher import Place
from tests.runtime.helpers import TARGET, sums, whole
from tests.support.results import result

runner = CliRunner()


def shown(directory: Path, *options: str) -> str:
    return runner.invoke(app, ["show", str(directory), *options], catch_exceptions=False).output


def test_it_tells_the_end_of_the_run_again_and_with_all_the_tables_too(tmp_path: Path) -> None:
    write_result(tmp_path / RESULT, result())
    short, whole = shown(tmp_path), shown(tmp_path, "--all")
    assert len(short.splitlines()) <= LINES
    assert "2.85 times as fast as ONNX Runtime" in short
    assert whole.endswith(short)
    for title in ("latency against error", "placement", "serving", "Last check of the artifact"):
        assert title in whole
        assert title not in short


def test_a_run_with_several_profiles_is_told_profile_by_profile(tmp_path: Path) -> None:
    rows = [{"shapes": {"x": [1, k]}, "directory": f"profiles/{k}", **to_plain(result())} for k in (8, 16)]
    (tmp_path / RESULT).write_text(json.dumps({"schema": result().schema, "profiles": rows}))
    assert "2 profiles of input shapes" in shown(tmp_path)
    assert "profile: x [1, 16]" in shown(tmp_path, "--all")


def test_of_a_run_that_stopped_it_tells_the_answer_so_far_and_other_commands_how_to_finish(tmp_path: Path) -> None:
    place = Place(tmp_path)
    exact, fast = place.baseline("onnxruntime", 20.0), place.baseline("openvino", 10.0, 5e-3, exact=False)
    place.best.offer_baselines([exact, fast])
    write_baselines(tmp_path / "baselines.json", [exact, fast])
    save_run(tmp_path, parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test"), "run")
    told = shown(tmp_path)
    assert "before its final comparison, which has not confirmed this answer" in told
    assert "  10.0 ms, 2.00 times as fast as ONNX Runtime, error 0.005 (timed by itself)" in told
    assert "  baseline ONNX Runtime in float32: 20.0 ms, error 0\n" in told
    assert f"    {COMMAND} resume {tmp_path}\n" in told
    assert json.loads(shown(tmp_path, "--json"))["so_far"]["latency_ms"] == 10.0
    for command in (["show", str(tmp_path), "--picture", "p.svg"], ["pick", str(tmp_path), "--budget", "0.1"]):
        with pytest.raises(InputError, match=f"inspect and load work now; finish it with: .* resume {tmp_path}"):
            runner.invoke(app, command, catch_exceptions=False)


def test_of_a_stopped_run_with_several_profiles_each_answer_has_its_shapes(tmp_path: Path) -> None:
    infos = [SoFar(ms, 0.0, Evidence.BASELINE).info for ms in (1.5, 2.5)]
    programs = [whole(sums(size), tmp_path / "cache") for size in (2, 3)]
    save_run(tmp_path, parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test"), "run")
    for confirmed, told in ((False, "1.50 ms, error 0 (timed by itself)"), (True, "compared")):
        known = [{} if confirmed else infos[0], infos[1]]
        write_artifact(tmp_path / "best.collage", list(map(Profile, programs, known)), TARGET)
        text = shown(tmp_path)
        assert "has not confirmed these answers" in text
        assert f"  x [2, 4], k [1]: {told}\n" in text
        assert "  x [3, 4], k [1]: 2.50 ms, error 0 (timed by itself)\n" in text
        profiles = json.loads(shown(tmp_path, "--json"))["profiles"]
        assert [one and one["latency_ms"] for one in profiles] == [None if confirmed else 1.5, 2.5]


@pytest.mark.parametrize("why", ["Time is over before the final comparison", "A stage failed before the end of the "])
def test_a_run_that_ends_with_the_answer_so_far_says_why_above_it(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def exits(code: int) -> None:
        raise SystemExit(code)

    def stays() -> None:
        raise AnswerStays("it stays")

    place = Place(tmp_path)
    place.best.offer_baselines([place.baseline("onnxruntime", 20.0)])
    monkeypatch.setattr("os._exit", exits)
    monkeypatch.setattr("collage_evo.graph.ir.weights.remove_weight_files", lambda: None)  # other tests' too
    with pytest.raises(SystemExit) as ended, resumable(tmp_path):
        end_in_time(tmp_path) if why.startswith("Time") else stays()
    told = capfd.readouterr()
    assert ended.value.code == 0
    assert told.out.startswith(why)
    assert told.out.splitlines()[0].endswith("final comparison, which has not confirmed this answer:")
    assert told.err == ""


def test_the_first_answer_of_several_profiles_has_its_shapes_too(tmp_path: Path) -> None:
    info = SoFar(1.5, 0.0, Evidence.BASELINE).info
    write_artifact(tmp_path / "best.collage", [Profile(whole(sums(2), tmp_path / "cache"), info)], TARGET)
    save_run(tmp_path, parse_config({"model": {"source": "builtin:squeezenet"}}, (), "test"), "run")
    assert "  1.50 ms, error 0 (timed by itself)\n" in shown(tmp_path)
    (tmp_path / "profiles").mkdir()
    assert "  x [2, 4], k [1]: 1.50 ms, error 0 (timed by itself)\n" in shown(tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "holds no result.json"),
        ('{"schema": 2}', "has schema 2, .*: write it again with .* resume"),
        ('{"schema": 999}', "has schema 999, .*: take the version that wrote it"),
        ('{"schema": 5, "model": 3}', "result.json"),
    ],
)
def test_what_is_no_result_of_a_run_says_what_to_do(tmp_path: Path, content: str | None, told: str) -> None:
    if content is not None:
        (tmp_path / RESULT).write_text(content)
    with pytest.raises(InputError, match=told):
        shown(tmp_path)


@pytest.mark.parametrize("place", [".", "profiles/1"])
@pytest.mark.parametrize("content", ['{"schema": 2}', '{"schema": 5, "model": 3}', "["])
def test_nobody_is_told_to_go_on_with_what_an_older_version_searched(
    tmp_path: Path, place: str, content: str
) -> None:
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "checkpoint.json").write_text("{}")
    (tmp_path / RESULT).write_text(content)
    with pytest.raises(InputError, match="search again with another --out") as refused:
        shown(tmp_path)
    assert "resume" not in str(refused.value)
