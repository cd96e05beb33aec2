"""What docs/deploying.md shows runs on an artifact of a small network, and its list of licences is whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.signature import signature_of
from tests.cli.commands import collage
from tests.runtime.helpers import CONVNET, TARGET, expected, image, whole
from tests.support.typed import not_none

PAGE = (Path(__file__).parents[1] / "docs/deploying.md").read_text()
LICENCES = "\n".join(line for line in PAGE.partition("## Licences")[2].splitlines() if line.startswith("|"))
"""The rows of the page's last table."""


def snippet(mark: str) -> str:
    """The page's block of Python that contains ``mark``."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return next(block for block in blocks if mark in block)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an artifact."""
    program = whole(CONVNET, tmp_path / "cache")
    write_artifact(tmp_path / "my_model.collage", [Profile(program)], TARGET, signature_of(CONVNET))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Refusal(Exception):
    """In place of fastapi.HTTPException."""


@pytest.mark.usefixtures("folder")
def test_the_server_answers_and_refuses_what_it_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    routes: dict[str, Any] = {}

    class App:
        def post(self, path: str) -> Any:
            return lambda function: routes.setdefault(path, function)

    monkeypatch.setitem(sys.modules, "fastapi", SimpleNamespace(FastAPI=App, HTTPException=Refusal))
    exec(snippet("FastAPI"), names := dict[str, Any]())
    sessions = names["idle"].qsize()
    (output,) = routes["/infer"]({"x": image(0)["x"].tolist()})
    np.testing.assert_allclose(output, expected(0), rtol=1e-5, atol=1e-6)
    with pytest.raises(Refusal, match="input 'x' is"):
        routes["/infer"]({"x": [[1.0]]})
    assert names["idle"].qsize() == sessions > 0


def test_the_model_of_triton_answers_each_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(request: dict[str, np.ndarray], name: str) -> Any:
        return SimpleNamespace(as_numpy=lambda: request[name])

    pb_utils = SimpleNamespace(
        get_input_tensor_by_name=given, InferenceResponse=dict, Tensor=lambda name, array: (name, array)
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", pb_utils)
    exec(snippet("TritonPythonModel"), names := dict[str, Any]())
    (folder / "1").mkdir()
    (folder / "my_model.collage").rename(folder / "1/my_model.collage")
    model = names["TritonPythonModel"]()
    model.initialize({"model_repository": str(folder), "model_version": "1"})
    answers = model.execute([image(1), image(2)])
    for seed, answer in enumerate(answers, 1):
        np.testing.assert_allclose(next(iter(answer.values())), expected(seed), rtol=1e-5, atol=1e-6)
    assert list(answers[0]) == [value.name for value in model.session.get_outputs()]


@pytest.mark.slow
def test_a_job_reads_what_compare_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(CONVNET, folder / "my_model.onnx")
    np.savez(folder / "samples.npz", **image(0))
    command = not_none(re.search(r"python -m collage_evo (compare .*) > compare\.json", PAGE))
    done = collage(*command[1].split(), "--library", "onnxruntime", "--seconds", 1, cwd=folder)
    (folder / "compare.json").write_text(done.stdout)
    assert json.loads(done.stdout)["exit_code"] == done.returncode
    exec(snippet("compare.json"), {})
    verdict, library = capsys.readouterr().out.splitlines()
    assert "artifact" in verdict
    assert re.fullmatch(r"onnxruntime( [\d.]+){3}", library)


@pytest.mark.slow
def test_the_workflow_ends_with_the_exit_code_of_compare(folder: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(name: .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    workflow = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    assert (workflow[True], len(text.splitlines())) == ("pull_request", 10), "YAML 1.1 reads the key on as true"
    assert [*map(len, job["steps"])] == [2, 1, 1]
    onnx.save(CONVNET, folder / "my_model.onnx")
    np.savez(folder / "samples.npz", **image(0))
    command = job["steps"][-1]["run"].removeprefix("python -m collage_evo ").split()
    done = collage(*command, "--library", "onnxruntime", "--seconds", 1, cwd=folder)
    assert ("Slower: " in done.stdout, done.returncode) in {(True, 4), (False, 0)}, done.stdout


def needed(name: str, extras: tuple[str, ...], seen: set[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """The installed packages that a distribution needs, and what these need."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    try:
        requirements = map(Requirement, metadata.requires(name) or ())
    except metadata.PackageNotFoundError:  # of an extra that is not installed here
        return
    for one in requirements:
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras or ("",)):
            yield canonicalize_name(one.name)
            yield from needed(one.name, tuple(one.extras), seen)


def asks_for_sources(name: str) -> bool:
    """Whether the metadata names a licence with conditions for changed copies."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return False
    said = [about.get("License-Expression") or about.get("License") or "", *(about.get_all("Classifier") or ())]
    return bool(re.search(r"GPL|MPL|Mozilla Public", " ".join(line for line in said if len(line) < 100)))


def test_the_list_of_licences_names_each_that_has_conditions() -> None:
    serving, _, search = LICENCES.partition("| the search only")
    for extras, text in ((("onnxruntime", "openvino", "ncnn", "tvm"), serving), (("search",), search)):
        with_conditions = {name for name in needed("collage-evo", extras, set()) if asks_for_sources(name)}
        assert "deap" in with_conditions or extras != ("search",)
        assert not {name for name in with_conditions if not re.search(rf"\b{name}\b", text)}


def test_the_list_of_licences_names_each_dependency() -> None:
    extras = ("", "search", "onnxruntime", "openvino", "ncnn", "tvm")
    direct = [one for one in map(Requirement, metadata.requires("collage-evo") or ())
              if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)]  # fmt: skip
    assert not {one.name for one in direct if not re.search(rf"\b{one.name}\b", LICENCES, re.IGNORECASE)}


WITHOUT_SEARCH = """
import json, runpy, sys

names = json.loads(sys.argv.pop(1))

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
runpy.run_module("collage_evo", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["inspect", "my_model.collage"], 0, "region 0: onnxruntime"),
        (["exec", "my_model.collage", "--inputs", "x.npz", "--repeat", "1"], 0, "median"),
        (["backends"], 0, "onnxruntime"),
        (["run", "builtin:squeezenet"], 3, 'is missing: pip install "onnx>='),
    ],
)
def test_commands_of_a_serving_machine_need_nothing_of_the_search(
    command: list[str], code: int, told: str, folder: Path
) -> None:
    np.savez(folder / "x.npz", **image(0))
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    search = {Requirement(line).name for line in project["optional-dependencies"]["search"]}
    typer = {Requirement(line).name for line in metadata.requires("typer") or ()}
    missing = json.dumps([name.replace("-", "_").lower() for name in search - typer - {"onnxruntime"}] + ["yaml"])
    start = [sys.executable, "-c", WITHOUT_SEARCH, missing]
    done = subprocess.run([*start, *command], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
