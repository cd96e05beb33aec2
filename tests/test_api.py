"""The Python interface: any form of a model, inputs in memory, a result with its session, table and report."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import collage_evo
from collage_evo.answer.answer import Proof
from collage_evo.errors import ConfigError, InputError, NotSearchable
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.private import machine_directory
from collage_evo.report.places import COMMAND
from tests.support.models import chain
from tests.support.quick import QUICK, nested

X = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)
MODEL = chain(1)


def fast(cache: Path) -> dict[str, Any]:
    return nested({**QUICK, "search.evaluations": 2, "cache.dir": str(cache)})


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def told() -> list[tuple[str, float, float | None, str]]:
    return []


@pytest.fixture(scope="module")
def found(cache: Path, told: list[tuple[str, float, float | None, str]]) -> collage_evo.Result:
    return collage_evo.optimize(
        MODEL.SerializeToString(),
        inputs={"x": X},
        budget=1e-2,
        config=fast(cache),
        progress=lambda *progress: told.append(progress),
    )


def test_who_goes_on_says_with_what(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="resume needs out"):
        collage_evo.optimize(MODEL, resume=True)
    with pytest.raises(InputError, match=r"resume continues .* overwrite deletes it"):
        collage_evo.optimize(MODEL, out=tmp_path / "run", resume=True, overwrite=True)


def test_the_session_gives_the_models_answer(found: collage_evo.Result) -> None:
    np.testing.assert_allclose(
        found.session.run(None, {"x": X})[0], reference_outputs(MODEL, {"x": X})[0], rtol=1e-4, atol=1e-5
    )
    assert found.session is found.session


def test_the_result_is_there_as_report_text_and_html(found: collage_evo.Result) -> None:
    assert "budget: 0.01" in (found.directory / "config.yaml").read_text()
    assert json.loads((found.directory / "result.json").read_text())["best"]["name"] == found.report.best.name
    table = found.table()
    assert "onnxruntime" in table
    assert max(map(len, table.splitlines())) <= 80
    assert "\x1b" not in table
    assert found._repr_html_().startswith("<pre")
    text = " ".join(str(found).split())  # lines break where the numbers before them let them
    for part in ("budget 0.01", "save(PATH)", "export(PATH)", "table()"):
        assert part in text
    assert any("only one sample" in note for note in found.report.accuracy.notes)  # the text has those that fit
    for wrong in (str(found.directory), COMMAND, "1 samples", "held-out"):
        assert wrong not in text


def test_what_was_in_memory_is_in_the_run_directory(found: collage_evo.Result) -> None:
    config = (found.directory / "config.yaml").read_text()
    assert str(found.directory / "given" / "model.onnx") in config
    with np.load(found.directory / "given" / "data" / "000000.npz") as data:
        np.testing.assert_array_equal(data["x"], X)


def test_progress_tells_stages_and_how_far_they_are(
    found: collage_evo.Result, told: list[tuple[str, float, float | None, str]]
) -> None:
    names = list(dict.fromkeys(name for name, *_ in told))
    assert names[0] == "model"
    assert "search" in names
    assert any(total and 0 < done <= total for _, done, total, _ in told)


def test_saving_keeps_the_artifact(found: collage_evo.Result, tmp_path: Path) -> None:
    kept = found.save(tmp_path / "kept.collage")
    with collage_evo.load(kept) as session:
        assert session.run(["y"], {"x": X})[0].shape == X.shape
    with pytest.raises(InputError, match="exists"):
        found.save(kept)


@pytest.mark.slow
def test_at_the_end_of_its_time_a_run_gives_the_best_answer_so_far(cache: Path) -> None:
    unending = {"seconds": 600, "evaluations": 10**6, "ga": {"patience": 0}}
    long = {"final": {"seconds": 600, "rounds": 1000}, "search": unending}
    found = collage_evo.optimize(chain(6), time=8, config={**fast(cache), **long})
    assert found.report.proof in tuple(Proof)
    assert "ONNX Runtime" in str(found)
    outputs = found.session.run(None, {"x": X})
    np.testing.assert_allclose(outputs[0], reference_outputs(chain(6), {"x": X})[0], rtol=1e-4, atol=1e-5)


def test_the_answer_goes_out_as_plain_files(found: collage_evo.Result, tmp_path: Path) -> None:
    assert "equal to the bit" in found.export(tmp_path / "plain").checks["."]
    assert (tmp_path / "plain" / "pipeline.json").exists()


@pytest.mark.slow
def test_a_script_needs_no_guard_and_is_told_the_usual_lines(cache: Path, tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "tiny.onnx")
    (tmp_path / "script.py").write_text(
        "import collage_evo\n"
        f"found = collage_evo.optimize('tiny.onnx', config={fast(cache)!r}, out='run')\n"
        "print('answer', found.report.answer, found.artifact)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("answer") == 1
    assert (tmp_path / "run" / "best.collage").is_dir()
    assert "search" in done.stderr


def test_bad_arguments_end_in_one_line_and_leave_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "mine").touch()
    bad: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ("absent.onnx", {}, InputError, "absent.onnx"),
        (b"no model", {}, InputError, "not an ONNX model"),
        (MODEL, {"config": {"search": {"secnds": 1}}}, ConfigError, "did you mean search.seconds"),
        (MODEL, {"search_seconds": -1}, ConfigError, "search.seconds"),
        (MODEL, {"inputs": {"x": np.array([{}])}}, InputError, "'x' holds Python objects"),
        (MODEL, {"metric": lambda outputs, items: 0.0}, InputError, "put it into a file of its own"),
        (MODEL, {"metric": "f2"}, ConfigError, "'f2' is no metric: choose agreement"),
        (MODEL, {"config": "absent.yaml"}, InputError, r"no such file: absent\.yaml"),
    ]
    for model, arguments, kind, message in bad:
        with pytest.raises(kind, match=message) as refused:
            collage_evo.optimize(model, **arguments)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="mine/run: Not a directory"):
        collage_evo.optimize(MODEL, config=fast(cache), out=tmp_path / "mine" / "run")
    left = {path.name for path in (tmp_path / "temporary").glob("collage_evo-*/")}
    assert left <= {machine_directory().name}  # where runs of this machine meet, not a run's own


def test_a_used_directory_is_left_alone(found: collage_evo.Result, cache: Path) -> None:
    with pytest.raises(InputError, match="in use"):
        collage_evo.optimize(MODEL, config=fast(cache), out=found.directory)


@pytest.mark.parametrize(
    "name",
    [
        *("collage_evo", "collage_evo.errors", "collage_evo.runtime", "collage_evo.runtime.session"),
        *("collage_evo.backends.base", "collage_evo.backends.registry", "collage_evo.patterns.language"),
        *("collage_evo.testing", "collage_evo.testing.conformance", "collage_evo.testing.pytest_backend"),
    ],
)
def test_a_module_that_users_import_lists_its_public_names_only(name: str) -> None:
    module = importlib.import_module(name)
    listed = dir(module)
    assert listed == sorted(module.__all__)
    for one in listed:
        if not hasattr(module, one):  # a module in a package
            importlib.import_module(f"{name}.{one}")


def test_loading_imports_nothing_of_the_search() -> None:
    script = (
        "import sys, collage_evo; collage_evo.load\n"
        "print(sorted({'onnx', 'joblib', 'pydantic', 'collage_evo.api', 'rich'} & set(sys.modules)))\n"
        "collage_evo.optimize; print('onnx' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = collage_evo.optimise  # type: ignore[attr-defined]


def test_onnxruntime_keeps_no_reports(tmp_path: Path) -> None:
    script = (
        "from collage_evo.graph.reference.reference import Reference\n"
        "from collage_evo.testing.cases import CASES\n"
        "Reference(CASES['relu']())\n"
    )
    given = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    homes = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(tmp_path))
    subprocess.run([sys.executable, "-c", script], env={**given, **homes}, check=True)
    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_what_is_missing_for_the_search_is_named() -> None:
    script = (
        "import sys; sys.modules['pydantic'] = None\n"
        "import collage_evo\n"
        "try:\n    collage_evo.optimize\nexcept collage_evo.errors.CollageError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert 'is missing: pip install "onnx>=' in done.stdout
    assert '"pydantic>=' in done.stdout
    assert "collage-evo[" not in done.stdout, "it is on no index"


def test_a_search_needs_no_library_but_one_and_no_cluster() -> None:
    script = (
        "import sys\n"
        "for name in ('dask', 'distributed', 'openvino', 'ncnn', 'tvm', 'torch'):\n    sys.modules[name] = None\n"
        "import collage_evo, collage_evo.cli\n"
        "print(collage_evo.optimize.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "optimize", done.stderr


@pytest.mark.slow
def test_where_no_placement_could_be_measured_the_best_backend_is_the_answer_and_it_says_why(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise NotSearchable("no placement could be measured: there was no time")

    monkeypatch.setattr("collage_evo.run.stages.evolve.run_search", none)
    found = collage_evo.optimize(MODEL, inputs={"x": X}, config=fast(cache), out=tmp_path / "run")
    assert found.report.not_searched == "no placement could be measured: there was no time"
    assert found.report.answer in {baseline.name for baseline in found.report.baselines}
    assert found.session.run(None, {"x": X})[0].shape == X.shape
