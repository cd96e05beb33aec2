"""Networks that ``benchmarks/large_models.py`` exports, made small: files as a run gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.graph.load.load import load_model
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import Reference, reference_outputs
from tests.graph.helpers import difference

pytest.importorskip("onnxscript")
torch = pytest.importorskip("torch")

DECODER = "decoder?layers=2&width=256&groups=2&inner=160&vocabulary=50"
GIVEN = {
    "vit_l16?size=32&layers=2&width=128": ("image", (1, 3, 32, 32)),
    "speech_encoder?frames=40&layers=2&width=128&bins=8": ("features", (1, 8, 40)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_outputs_are_not_flat_and_normalising_keeps_them(script: Any, tmp_path: Path, name: str) -> None:
    if name.startswith("vit"):
        pytest.importorskip("torchvision")
    model = load_model(str(script("large_models").write(name, tmp_path))).original
    given, shape = GIVEN[name]
    feeds = {given: np.random.default_rng(0).standard_normal(shape, np.float32)}
    (found,) = reference_outputs(model, feeds)
    assert 0.3 < np.std(found) < 3
    assert difference(model, normalise(model)) < 1e-5


def test_weights_lie_beside_the_model_and_are_the_same_each_time(script: Any, tmp_path: Path) -> None:
    files = [script("large_models").write(DECODER, tmp_path / name) for name in ("a", "b")]
    weights = [path.with_name("model.onnx.data").read_bytes() for path in files]
    assert weights[0] == weights[1]
    assert len(weights[0]) > 10 * files[0].stat().st_size


def test_one_token_after_others_has_the_logits_that_it_has_with_them(script: Any, tmp_path: Path) -> None:
    reference = Reference(onnx.load(script("large_models").write(DECODER, tmp_path)))
    tokens = np.arange(1, 8)[None]
    cached = [f"past_key_values.{layer}.{kind}" for layer in range(2) for kind in ("key", "value")]
    none = dict.fromkeys(cached, np.zeros((1, 2, 0, 64), np.float32))
    together, *_ = reference.run({"input_ids": tokens, "position_ids": tokens - 1, **none})
    _, *present = reference.run({"input_ids": tokens[:, :6], "position_ids": tokens[:, :6] - 1, **none})
    past = dict(zip(cached, present, strict=True))
    last, *_ = reference.run({"input_ids": tokens[:, 6:], "position_ids": tokens[:, 6:] - 1, **past})
    assert np.abs(last[0, 0] - together[0, 6]).max() < 1e-4
    assert np.abs(last[0, 0] - together[0, 5]).max() > 0.1
