"""Answers for inputs of many sizes: the provider runs them as the model does, and says what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from collage_evo.export.context_model import export_context_model
from collage_evo.graph.reference.reference import Reference
from tests.export.runs import POSITIONS, encoder, halves, of_tokens, open_answer, open_sum


def provided(run: Path, to: Path, provider: str) -> ort.InferenceSession:
    """The answer of ``run``, exported and opened in the provider."""
    export_context_model(run, to)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices([one for one in ort.get_ep_devices() if one.ep_name == provider], {})
    return ort.InferenceSession(str(to / "model.onnx"), sess_options=options)


@pytest.mark.parametrize("pieces", [[encoder()], halves()], ids=["one", "two"])
def test_open_inputs_of_any_size_give_what_the_model_does_and_a_size_too_large_is_refused(
    tmp_path: Path, provider: str, pieces: list[onnx.ModelProto]
) -> None:
    session = provided(open_answer(tmp_path / "run", pieces), tmp_path / "out", provider)
    assert session.get_inputs()[0].shape == ["b", "t"]
    rng, reference = np.random.default_rng(1), Reference(encoder(), 1)
    for feeds in of_tokens((int(rng.integers(1, 9)), int(rng.integers(1, POSITIONS + 1))) for _ in range(40)):
        with pytest.raises(Exception, match="64 by 65"):
            session.run(None, {"ids": np.zeros((1, POSITIONS + 1), np.int64)})
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run_named(feeds)["y"], rtol=1e-4, atol=1e-5)


def test_sizes_of_one_name_that_differ_are_refused(tmp_path: Path, provider: str) -> None:
    session = provided(open_sum(tmp_path / "run"), tmp_path / "out", provider)
    x = np.ones((4, 3), np.float32)
    with pytest.raises(Exception, match="'rows' is 4 in input 'x' and 1 in 'z'"):
        session.run(None, {"x": x, "z": x[:1]})
    np.testing.assert_array_equal(session.run(None, {"x": x, "z": x})[0], 2 * x)
