"""Profiles of input shapes: each has its answer, one artifact holds all, any other shapes run too."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest

import collage_evo
from collage_evo.accuracy.samples import Sample
from collage_evo.answer.baselines import Baseline, best_fallback
from collage_evo.config import Config, changed, parse_config
from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.graph.load.files import save_model
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.report.progress import LineReporter
from collage_evo.run import profiles as run_module
from collage_evo.run.deadline import deadline, seconds_left
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Plan, Records
from collage_evo.run.samples import FixedShapes, describe_batch, matching, model_file, saved_shapes, shapes_of_run
from collage_evo.run.stages.baselines import Baselines
from collage_evo.runtime.artifact import read_artifact
from tests.runtime.helpers import sums
from tests.support.parsed import files_parsed
from tests.support.quick import QUICK, nested
from tests.support.typed import not_none

pytestmark = pytest.mark.slow

OPEN = sums("rows")
K = np.array([3], np.int64)
TWO = {"x": [[2, 4], [5, 4]], "k": [1]}


def rows(n: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32), "k": K}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> collage_evo.Result:
    """Two profiles, with a sample of each."""
    folder = tmp_path_factory.mktemp("profiles")
    config = nested({**QUICK, "backends.use": ["onnxruntime", "openvino"], "cache.dir": str(folder / "cache")})
    run = folder / "run"
    profiles = []

    def told(stage: str, done: float, total: float | None, note: str) -> None:
        if note.startswith("first answer"):
            profiles.append(len(read_artifact(run / "best.collage").profiles))

    with files_parsed(run / "given" / "model.onnx") as parsed:
        result = collage_evo.optimize(
            OPEN, inputs=[rows(2), rows(5)], shapes=TWO, config=config, out=run, progress=told
        )
    assert len(parsed) == 1, "each profile is opened twice, and before that their shapes are looked for"
    assert profiles == [1, 2, 2], "each answer is there at once, and both before either is searched"
    return result


def test_each_profile_and_any_other_shape_gets_the_models_answer(found: collage_evo.Result) -> None:
    theirs = ort.InferenceSession(OPEN.SerializeToString())
    assert [profile.shapes for profile in found.profiles] == [{"x": [2, 4], "k": [1]}, {"x": [5, 4], "k": [1]}]
    for n in (2, 5, 3, 0, 2):
        np.testing.assert_allclose(found.session.run(None, rows(n))[0], theirs.run(None, rows(n))[0], rtol=1e-6)
        assert found.session.program.shapes[0] == ((n, 4) if n in (2, 5) else None)
    assert found.session.get_inputs()[0].shape == ["rows", 4]
    assert found.session.get_modelmeta().custom_metadata_map == {"character": "a\nb"}


def test_the_only_library_that_takes_any_shapes_is_measured_once(found: collage_evo.Result) -> None:
    one, other = (found.directory / "profiles" / name / "fallbacks" for name in "01")
    assert [path.name for path in other.iterdir()] == ["onnxruntime.collage"]
    assert (one / "onnxruntime.collage/manifest.json").samefile(other / "onnxruntime.collage/manifest.json")


def test_each_profile_is_a_run_of_its_own_and_the_result_lists_them(found: collage_evo.Result) -> None:
    result = json.loads((found.directory / "result.json").read_text())
    assert [profile["directory"] for profile in result["profiles"]] == ["profiles/0", "profiles/1"]
    for profile in result["profiles"]:
        own = json.loads((found.directory / profile["directory"] / "result.json").read_text())
        assert own["best"] == profile["best"]
        assert own["call_ms"] is not None
        assert len(read_artifact(found.directory / profile["directory"] / "best.collage").profiles) == 1
    assert len(read_artifact(found.artifact).profiles) == 2
    assert "profiles/1/report.html" in (found.directory / "report.html").read_text()
    assert "profile: x [5, 4], k [1]" in found.table()


def config(tmp_path: Path, counts: Sequence[int] = (2, 5, 2), **model: object) -> Config:
    save_model(OPEN, tmp_path / "m.onnx")
    for index, n in enumerate(counts):
        np.savez(tmp_path / f"{index}.npz", **rows(n))  # type: ignore[arg-type]
    source = {"source": str(tmp_path / "m.onnx"), **model}
    return parse_config({"model": source, "data": {"source": str(tmp_path)}}, (), "here")


def shapes(asked: Config) -> FixedShapes | OpenShapes:
    return shapes_of_run(asked, model_file(asked))[0]


def test_the_shapes_given_come_before_those_of_the_data(tmp_path: Path) -> None:
    found = shapes(config(tmp_path))
    assert isinstance(found, OpenShapes)
    assert (found.smallest["x"], found.largest["x"]) == ([2, 4], [5, 4])
    assert shapes(config(tmp_path, shapes={"x": [7, 4]})) == FixedShapes(({"x": [7, 4]},))


@pytest.mark.parametrize("counts", [(2, 5), (2, 2)])
def test_a_run_that_goes_on_has_the_shapes_that_it_had_whatever_became_of_the_data(
    tmp_path: Path, counts: tuple[int, int]
) -> None:
    asked = config(tmp_path, counts=counts)
    first = saved_shapes(asked, tmp_path / "run", model_file(asked))
    assert isinstance(first, OpenShapes if len(set(counts)) > 1 else FixedShapes)
    for path in tmp_path.glob("*.npz"):
        path.unlink()
    assert saved_shapes(asked, tmp_path / "run", model_file(asked)) == first


def test_a_profile_takes_the_samples_of_its_shapes() -> None:
    samples = [Sample(rows(n), {"words": np.zeros(n + index)}) for index, n in enumerate((2, 5, 2))]
    assert [s.feeds["x"].shape[0] for s in matching(samples, {"x": [2, 4]})] == [2, 2]
    assert [s.feeds["x"].shape[0] for s in matching(samples, {"k": [1]})] == [2, 2], "one shape in a run"
    assert matching(samples, {"x": [7, 4]}) == ()


def replace_runs(monkeypatch: pytest.MonkeyPatch, on_opened: Callable[[Config, Path], object]) -> None:
    """Runs of profiles do nothing but call ``on_opened``."""

    @contextlib.contextmanager
    def open_records(config: Config, directory: Path, *others: object) -> Iterator[Records]:
        on_opened(config, directory)
        yield Records(Plan(()), {Publisher: SimpleNamespace(), Baselines: None})

    monkeypatch.setattr(run_module, "open_records", open_records)
    for step in ("on_threads_that_pay", "finish", "_join", "_write"):
        monkeypatch.setattr(run_module, step, lambda *given: None)


def test_of_several_profiles_one_without_data_has_random_inputs_and_the_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: dict[str, list[str | None]] = {}
    lines: list[str] = []

    def opened(shaped: Config, directory: Path) -> None:
        sources.setdefault(directory.name, []).append(shaped.data.source)

    replace_runs(monkeypatch, opened)
    asked = config(tmp_path, shapes={"x": [[2, 4], [7, 4]], "k": [1]})
    (tmp_path / "run").mkdir()
    run_module.run_profiles(asked, tmp_path / "run", LineReporter(lines.append))
    assert sources == {"0": [str(tmp_path)] * 2, "1": [None] * 2}
    assert [line for line in lines if "inputs are random" in line and "profile 1" in line]


def test_data_that_does_not_fit_the_model_is_refused(tmp_path: Path) -> None:
    asked = config(tmp_path)
    np.savez(tmp_path / "9.npz", x=rows(2)["x"])
    with pytest.raises(InputError, match=r"9\.npz has no array 'k'"):
        shapes(asked)


def test_the_fall_back_is_the_best_over_all_profiles() -> None:
    def measured(**latency: float | None) -> list[Baseline]:
        cannot = Outcome.unfit(Failure(Fault.BUILD, "cannot"))
        return [
            Baseline(name, name, "default", Path(name), Outcome(ms) if ms else cannot)
            for name, ms in latency.items()
        ]

    best = not_none(best_fallback([measured(a=1.0, b=2.0, c=0.1), measured(a=9.0, b=3.0, c=None)]))
    assert best.name == "b"
    assert best_fallback([measured(a=1.0), measured(a=None)]) is None
    assert best_fallback([[]]) is None


def test_a_batch_that_the_data_choose_is_said_with_the_shapes_of_single_samples(tmp_path: Path) -> None:
    save_model(OPEN, tmp_path / "m.onnx")

    def said(count: int, **model: object) -> str:
        np.savez(tmp_path / "x.npz", **rows(count))  # type: ignore[arg-type]
        source = {"source": str(tmp_path / "m.onnx"), **model}
        asked = parse_config({"model": source, "data": {"source": str(tmp_path)}}, (), "test")
        file = model_file(asked)
        return describe_batch(asked, shapes_of_run(asked, file)[0].profiles, file)

    assert said(64) == (
        "The model's batch is dynamic: this run optimises for a batch of 64 and judges each batch as one sample. "
        "To serve batch 1: --shapes 'x: [1, 4]'"
    )
    assert said(1) == (
        "The model's batch is dynamic: this run optimises for a batch of 1 and judges each batch as one sample. "
        "To serve batch 8: --shapes 'x: [8, 4]'"
    )
    assert said(64, shapes={"x": [64, 4]}) == ""


def test_it_is_said_before_and_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(OPEN, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", **rows(64))  # type: ignore[arg-type]
    asked = parse_config(
        {"model": {"source": str(tmp_path / "m.onnx")}, "data": {"source": str(tmp_path / "x.npz")}}, (), "test"
    )
    lines: list[str] = []
    replace_runs(monkeypatch, lambda *given: lines.append("it runs"))
    (tmp_path / "run").mkdir()
    run_module.run_profiles(asked, tmp_path / "run", LineReporter(lines.append))
    said = ["this run optimises for a batch of 1 " in line for line in lines]
    before, after = said[: lines.index("it runs")], said[lines.index("it runs") :]
    assert (sum(before), sum(after)) == (1, 1)


def test_profiles_share_a_run_s_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = changed(config(tmp_path, shapes=TWO), {"time": 1000.0, "costs.seconds": 500.0}, "test")
    asked = changed(asked, {"final.seconds": 3.0, "backends.seconds": 150.0}, "test")
    configs, left_s, lines = list[Config](), list[float](), list[str]()

    def opened(shaped: Config, directory: Path) -> None:
        configs.append(shaped)
        left_s.append(seconds_left())

    replace_runs(monkeypatch, opened)
    (tmp_path / "run").mkdir()
    with deadline(1000.0, spent_s=98.0):
        run_module.run_profiles(asked, tmp_path / "run", LineReporter(lines.append))
    assert left_s == pytest.approx([900, 900, 450, 900], abs=100), "the second has what the first left"
    shares = {(c.backends.seconds, c.costs.seconds, c.final.seconds) for c in configs}
    assert shares == {(75.0, 500.0, 3.0)}, "more than the share of the whole is what the user asked for"


@pytest.mark.parametrize(("use", "said"), [([], True), (["onnxruntime"], False)])
def test_a_run_says_which_library_takes_no_part_and_why(
    use: list[str], said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = changed(config(tmp_path, shapes={"x": [7, 4]}), {"backends.use": use}, "test")
    lines: list[str] = []
    monkeypatch.setattr(run_module, "half_installed", lambda device: {"ncnn": "its converter is not installed"})
    replace_runs(monkeypatch, lambda *given: None)
    (tmp_path / "run").mkdir()
    run_module.run_profiles(asked, tmp_path / "run", LineReporter(lines.append))
    assert any("ncnn takes no part: its converter is not installed" in line for line in lines) == said
