"""ncnn's variants: what is compiled for one of them runs as the other too, each with its own convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.backends.base import Built, Target
from collage_evo.backends.ncnn import net
from collage_evo.backends.registry import get_backend
from collage_evo.graph.read import build_graph
from collage_evo.testing.cases import CASES


@pytest.mark.parametrize("case", ["conv_3x3", "conv_3d"])
def test_winograd_is_chosen_where_a_piece_is_loaded(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ncnn, model = get_backend("ncnn"), CASES[case]()
    graph = build_graph(model)
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    sgemm = ncnn.variant("sgemm")
    assert isinstance(ncnn.build(model, Target(), ncnn.builder(sgemm), tmp_path), Built)
    chosen: list[bool] = []
    load = net.Network.__init__

    def noted(network: net.Network, param: Path, weights: Path, threads: int, winograd: bool) -> None:
        load(network, param, weights, threads, winograd)
        chosen.append(network.net.opt.use_winograd_convolution)

    monkeypatch.setattr(net.Network, "__init__", noted)
    for variant in (ncnn.variant("default"), sgemm, ncnn.variant("sgemm~other-form")):
        ncnn.load(tmp_path, Target(), variant, *sides)
    assert chosen == [True, False, False]
