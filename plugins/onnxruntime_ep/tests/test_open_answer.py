"""Answers for inputs of many sizes: the provider runs them as the model does, and says what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from collage_evo.export.context_model import export_context_model
from collage_evo.graph.reference.reference import Reference
from tests.export.runs import POSITIONS, encoder, halves, of_tokens, open_answer


@pytest.mark.parametrize("pieces", [[encoder()], halves()], ids=["one", "two"])
def test_open_inputs_of_any_size_give_what_the_model_does_and_a_size_too_large_is_refused(
    tmp_path: Path, provider: str, pieces: list[onnx.ModelProto]
) -> None:
    export_context_model(open_answer(tmp_path / "run", pieces), tmp_path / "out")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_provider_for_devices([one for one in ort.get_ep_devices() if one.ep_name == provider], {})
    session = ort.InferenceSession(str(tmp_path / "out" / "model.onnx"), sess_options=options)
    assert session.get_inputs()[0].shape == ["b", "t"]
    rng, reference = np.random.default_rng(1), Reference(encoder(), 1)
    for feeds in of_tokens((int(rng.integers(1, 9)), int(rng.integers(1, POSITIONS + 1))) for _ in range(40)):
        with pytest.raises(Exception, match="64 by 65"):
            session.run(None, {"ids": np.zeros((1, POSITIONS + 1), np.int64)})
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run_named(feeds)["y"], rtol=1e-4, atol=1e-5)
