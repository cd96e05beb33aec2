"""Each example runs: on the package that it names where that is installed, and on a small network of its kind."""

from __future__ import annotations

import ast
import asyncio
import importlib
import itertools
import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
import pytest

import collage_evo
from collage_evo.models.bert import bert
from collage_evo.models.builder import Builder
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.session import Session
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, whole
from tests.support.models import tiny_convnet
from tests.support.quick import QUICK
from tests.support.typed import not_none

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDED = {"ocr_pipeline": ["PIL"], "detector_on_frames": ["PIL"], "sentence_server": ["tornado"]}
LEAST = {**QUICK, "costs.seconds": 0.1, "final.speeds": "searched"}


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The module that a test is parametrised with, imported as its script would be."""
    monkeypatch.syspath_prepend(EXAMPLES)
    for package in NEEDED.get(request.param, ()):
        pytest.importorskip(package)
    yield importlib.import_module(request.param)
    for name in ("common", request.param):
        sys.modules.pop(name, None)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[collage_evo.Result]:
    """Lets ``optimize`` do the least that there is; gives what it found."""
    optimize, found = collage_evo.optimize, list[collage_evo.Result]()

    def with_least(*given: Any, **settings: Any) -> collage_evo.Result:
        least = {**LEAST, "cache.dir": str(tmp_path / "cache")}
        own = settings.pop("config", None) or {}
        if settings.keys() & {"budget", "precision"}:
            del least["accuracy.budget"]
        found.append(optimize(*given, **settings, config={**least, **own}))
        return found[-1]

    monkeypatch.setattr(collage_evo, "optimize", with_least)
    return found


def sessions_of(model: onnx.ModelProto, folder: Path) -> tuple[Session, onnxruntime.InferenceSession]:
    """An artifact's and ONNX Runtime's own."""
    folder.mkdir(exist_ok=True)
    write_artifact(folder / "a.collage", [Profile(whole(model, folder / "cache"))], TARGET, signature_of(model))
    return collage_evo.load(folder / "a.collage"), onnxruntime.InferenceSession(model.SerializeToString())


class Start(Protocol):
    def __call__(self, module: ModuleType, *args: object) -> str: ...


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Start:
    """Runs a script with arguments; gives what it printed."""

    def run(module: ModuleType, *args: object) -> str:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, args)])
        module.main()
        return capsys.readouterr().out

    return run


def needs(distribution: str) -> None:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")


def dark_finder() -> onnx.ModelProto:
    """A detector of dark places: pixels to how likely each is part of a letter."""
    net = Builder("finder")
    x = net.input("x", (1, 3, 320, 448))
    weights = net.const(np.full((1, 3, 1, 1), -2, np.float32))
    spread = net.op("MaxPool", net.op("Conv", x, weights), kernel_shape=[15, 49], pads=[7, 24, 7, 24])
    return net.model(net.op("Sigmoid", spread))


def column_reader() -> onnx.ModelProto:
    """A recogniser that calls a column dark, ``l``, or bright, which is no letter."""
    net = Builder("reader")
    x = net.input("x", (1, 3, 48, 320))
    darkest = net.op("ReduceMin", x, net.ints(1, 2), keepdims=0)  # [1, 320]
    scores = net.op("Unsqueeze", darkest, net.ints(2))
    model = net.model(net.op("Concat", scores, net.op("Neg", scores), axis=2))
    onnx.helper.set_model_props(model, {"character": "l"})
    return model


@pytest.mark.parametrize("example", ["ocr_pipeline"], indirect=True)
def test_the_pipeline_reads_the_same_from_artifacts_as_from_onnx_runtime(example: ModuleType, tmp_path: Path) -> None:
    finders = sessions_of(dark_finder(), tmp_path / "finder")
    readers = sessions_of(column_reader(), tmp_path / "reader")
    page = example.sample_page()
    ours, theirs = (example.read(page, *pair) for pair in zip(finders, readers, strict=True))
    assert ours == theirs
    assert len(ours) == 3, "lines on the page"
    assert all(set(line) == {"l"} for line in ours)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["ocr_pipeline"], indirect=True)
@pytest.mark.usefixtures("cheap")
def test_the_page_is_read_by_trained_networks(example: ModuleType, tmp_path: Path, start: Start) -> None:
    needs("rapidocr")
    assert "total 1,284.50 EUR" in start(example, "--runs", tmp_path)


def bright_cells() -> onnx.ModelProto:
    """A detector with the outputs of YOLOX, for which a bright cell is an object of one cell's size."""
    net = Builder("cells")
    x = net.input("images", (1, 3, 416, 416))
    parts = []
    for stride in (8, 16, 32):
        pooled = net.op("AveragePool", x, kernel_shape=[stride, stride], strides=[stride, stride])
        weights = np.zeros((6, 3, 1, 1), np.float32)
        weights[4:] = 1 / 765
        maps = net.op("Conv", pooled, net.const(weights))
        parts.append(net.op("Reshape", maps, net.ints(1, 6, -1)))
    return net.model(net.op("Transpose", net.op("Concat", *parts, axis=2), perm=[0, 2, 1]))


@pytest.mark.parametrize("example", ["detector_on_frames"], indirect=True)
def test_the_detector_finds_what_is_bright_and_where(example: ModuleType, tmp_path: Path) -> None:
    from PIL import Image

    ours, theirs = sessions_of(bright_cells(), tmp_path)
    frame = Image.new("RGB", (832, 416), "black")
    frame.paste("white", (320, 160, 336, 176))  # a cell of the network, at half of its size
    found = example.detect(frame, ours)
    np.testing.assert_allclose(found[0, :4], [320 - 8, 160 - 8, 320 + 8, 160 + 8], atol=1e-3)
    np.testing.assert_allclose(found, example.detect(frame, theirs), atol=1e-3)
    assert len(found) == 1


@pytest.mark.parametrize("example", ["detector_on_frames"], indirect=True)
def test_who_detects_slowly_misses_frames_and_not_the_last_one(example: ModuleType) -> None:
    frames = list(example.sample_frames(5))
    seen = [frames.index(frame) for frame in example.newest(iter(frames), every_s=0.0)]
    assert seen == sorted(set(seen))
    assert seen[-1] == 4


@pytest.mark.slow
@pytest.mark.parametrize("example", ["detector_on_frames"], indirect=True)
@pytest.mark.usefixtures("cheap")
def test_a_trained_detector_follows_what_moves(example: ModuleType, tmp_path: Path, start: Start) -> None:
    needs("ddddocr")
    assert " ms: (" in start(example, "--run", tmp_path / "run")


@pytest.mark.parametrize("example", ["sentence_server"], indirect=True)
def test_the_server_answers_what_the_encoder_gives_and_refuses_what_it_cannot_take(
    example: ModuleType, tmp_path: Path
) -> None:
    from tornado.httpclient import AsyncHTTPClient, HTTPRequest
    from tornado.httpserver import HTTPServer
    from tornado.testing import bind_unused_port

    ours, theirs = sessions_of(bert(seed=0, layers=1, hidden=16, heads=2, length=example.LENGTH), tmp_path)
    texts = ["a queue of requests", "a bright cell", ""]

    async def ask() -> list[Any]:
        server, (sockets, port) = HTTPServer(example.application([ours])), bind_unused_port()
        server.add_sockets([sockets])
        bodies = [json.dumps({"text": text}) for text in texts] + ["no json"]
        asked = (HTTPRequest(f"http://127.0.0.1:{port}/", method="POST", body=body) for body in bodies)
        client = AsyncHTTPClient()
        return await asyncio.gather(*(client.fetch(one, raise_error=False) for one in asked))

    *answers, refused = asyncio.run(ask())
    for text, answer in zip(texts, answers, strict=True):
        np.testing.assert_allclose(json.loads(answer.body)["vector"], example.encode(theirs, text), atol=1e-4)
    assert refused.code == 400


@pytest.mark.slow
@pytest.mark.usefixtures("registry_alone")
@pytest.mark.parametrize("example", ["own_backend"], indirect=True)
def test_the_backend_takes_part_and_is_right(
    example: ModuleType, cheap: list[collage_evo.Result], start: Start
) -> None:
    assert " on 1 thread: " in start(example)
    costs = not_none(cheap[0].report.cost_model)
    assert costs.matches["numpy"] == 3, "all but the pooling"
    assert "numpy" not in costs.refused, "its results were compared with the model's"
    source = (EXAMPLES / "own_backend.py").read_text()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert not_none(classes[-1].end_lineno) - classes[0].lineno < 45


@pytest.mark.slow
@pytest.mark.parametrize("example", ["own_metric"], indirect=True)
def test_the_metric_judges_the_answer(example: ModuleType, cheap: list[collage_evo.Result], start: Start) -> None:
    session = onnxruntime.InferenceSession(example.fitted().SerializeToString())
    items = list(itertools.islice(example.samples(), 40))
    outputs = [{"y": session.run(None, {"picture": item["picture"]})[0]} for item in items]
    assert 0.8 < example.accuracy(outputs, items) <= 1
    assert example.accuracy(outputs, items[1:] + items[:1]) < 0.2, "the neighbour's direction"
    start(example)
    accuracy = not_none(cheap[0].report.accuracy)
    assert accuracy.metric.endswith("own_metric.py:accuracy")


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(cheap: list[collage_evo.Result]) -> None:
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        *body, last = ast.parse("".join(cell["source"])).body
        value = isinstance(last, ast.Expr)
        exec(compile(ast.Module(body if value else [*body, last], []), "cell", "exec"), names)
        if value:
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))  # type: ignore[attr-defined]
        if "parameters" in cell["metadata"].get("tags", ()):
            names |= {"model": tiny_convnet(), "settings": {}}
    assert any(value is cheap[0] for value in shown)
    assert shown[-1] is True


def test_the_notebook_is_kept_with_its_outputs_and_the_processor() -> None:
    text = (EXAMPLES / "tour.ipynb").read_text()
    assert len(text) < 300_000
    shown = [cell["outputs"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert "Processor" in "".join(shown[0][0]["data"]["text/plain"])
    assert sum(map(bool, shown)) == len(shown) - 1, "all but the parameters"
    assert not [output for outputs in shown for output in outputs if output["output_type"] == "error"]


def test_each_example_says_what_it_shows_and_how_it_is_run() -> None:
    scripts = [path for path in EXAMPLES.glob("*.py") if path.name != "common.py"]
    assert len(scripts) >= 5
    listed = (EXAMPLES / "README.md").read_text()
    for path in scripts:
        told = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert f"python examples/{path.name}" in told
        assert "Shows " in told
        assert f"({path.name})" in listed
