"""Origins of placements: one text in checkpoints and results, which is no library's name."""

from __future__ import annotations

import pytest

from collage_evo.codec import from_plain, to_plain
from collage_evo.search.evolution.origin import Origin, Way, origin_in
from collage_evo.search.evolution.state import Pending


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("dp", Origin(Way.DYNAMIC_PROGRAM)),
        ("seed:dp-front", Origin(Way.FRONT_COVER, seeded=True)),
        ("single:openvino", Origin(Way.SINGLE, ("openvino",))),
        ("seed:single:openvino/default", Origin(Way.SINGLE, ("openvino",), "default", seeded=True)),
        ("ladder:openvino", Origin.mixture(("openvino", "default"))),
        ("seed:ladder:openvino/bf16", Origin.mixture(("openvino", "bf16")).as_seed),
        ("greedy:tvm,ncnn", Origin(Way.GREEDY, ("tvm", "ncnn"))),
        ("program", Origin(Way.SURROGATE_COVER)),
    ],
)
def test_an_origin_is_one_text_in_json(text: str, origin: Origin) -> None:
    assert (str(origin), Origin.parse(text), origin_in(text)) == (text, origin, origin)
    row = [{"choices": [], "merges": ""}, text]
    assert to_plain(from_plain(row, Pending), Pending) == row


@pytest.mark.parametrize("name", ["openvino", "openvino/bf16", "best", "new:0.5", ""])
def test_what_is_no_origin_is_the_name_of_a_library(name: str) -> None:
    assert origin_in(name) is None
    with pytest.raises(ValueError, match="is not a valid Way"):
        Origin.parse(name)
