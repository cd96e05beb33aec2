"""One run, and one answer, for inputs of several shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import collage_evo
from collage_evo.accuracy.samples import Sample
from collage_evo.errors import InputError
from collage_evo.models.builder import Builder
from collage_evo.run.stages.samples import timed_samples
from collage_evo.runtime.artifact import read_artifact
from tests.support.models import open_rows
from tests.support.quick import QUICK, nested

LENGTHS = (3, 9, 5, 3, 17, 4)


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(length).standard_normal((batch, length, 8)).astype(np.float32)}


@pytest.fixture(scope="module", params=["samples", "ranges"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> collage_evo.Result:
    folder = tmp_path_factory.mktemp("open")
    config = nested({**QUICK, "cache.dir": str(folder / "cache")})
    if request.param == "samples":
        inputs = [feeds(1, length) for length in LENGTHS]
        return collage_evo.optimize(open_rows(), inputs=inputs, config=config, out=folder / "run")
    shapes = {"batch": "1..4", "length": "1..20"}
    return collage_evo.optimize(open_rows(), shapes=shapes, config=config, out=folder / "run")


@pytest.mark.slow
def test_the_answer_takes_every_shape_of_the_model(found: collage_evo.Result) -> None:
    (profile,) = read_artifact(found.artifact).profiles
    assert profile.program.shapes == (None,)
    theirs = ort.InferenceSession(open_rows().SerializeToString())
    for shape in ((1, 3), (1, 40), (5, 7), (2, 1), (1, 3)):
        given = feeds(*shape)
        np.testing.assert_allclose(found.session.run(None, given)[0], theirs.run(None, given)[0], atol=1e-5)
    with pytest.raises(InputError, match="x"):
        found.session.run(None, {"x": np.zeros((1, 3, 9), np.float32)})
    assert found.session.run(None, feeds(1, 2))[0].shape == (1, 2, 4), "a refused shape leaves the session usable"


@pytest.mark.slow
def test_the_summary_says_that_the_first_request_of_each_shape_runs_elsewhere(tmp_path: Path) -> None:
    config = nested({**QUICK, "cache.dir": str(tmp_path / "cache"), "backends.use": ["openvino"]})
    net = Builder("product")
    x = net.input("x", ("batch", "length", 8))
    model = net.model(net.op("Relu", net.op("MatMul", x, net.const(np.eye(8, dtype=np.float32)))))
    inputs = [feeds(1, length) for length in LENGTHS]
    found = collage_evo.optimize(model, inputs=inputs, config=config, out=tmp_path / "run")
    assert "the first request of each shape also runs in ONNX Runtime" in str(found).replace("\n    ", " ")


def test_timed_shapes_have_weights_and_the_one_in_the_middle_of_the_time_comes_first() -> None:
    samples = tuple(Sample(feeds(1, length)) for length in (*LENGTHS, 40, 41, 2))
    chosen, weights = timed_samples(samples)
    lengths = [one["x"].shape[1] for one in chosen]
    assert (lengths[-2:], max(lengths[: len(weights)])) == ([2, 41], 41), "the ends are checked, not timed"
    every = [sample.feeds["x"].shape[1] for sample in samples]
    assert sum(weights) == pytest.approx(1)
    assert np.dot(weights, lengths[: len(weights)]) == pytest.approx(np.mean(every), rel=0.02)
    time = np.multiply(weights, lengths[: len(weights)])
    time_before = sum(one for one, length in zip(time, lengths, strict=False) if length < lengths[0])
    assert time_before < sum(time) / 2 <= time_before + time[0]
