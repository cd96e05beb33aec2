"""ncnn's variants: what is compiled for one of them runs as the other too, each with its own convolutions."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.ncnn.plain import piece
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo.testing.cases.case import weight


def test_winograd_is_chosen_where_a_piece_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ncnn, model = get_backend("ncnn"), CASES["conv_3x3"]()
    graph = build_graph(model)
    sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
    sgemm = ncnn.variant("sgemm")
    assert isinstance(ncnn.build(model, Target(), ncnn.builder(sgemm), tmp_path), Built)
    chosen: list[bool] = []
    load = piece.Network.__init__

    def noted(network: piece.Network, param: Path, weights: Path, threads: int, winograd: bool) -> None:
        load(network, param, weights, threads, winograd)
        chosen.append(network.net.opt.use_winograd_convolution)

    monkeypatch.setattr(piece.Network, "__init__", noted)
    for variant in (ncnn.variant("default"), sgemm, ncnn.variant("sgemm~other-form")):
        ncnn.load(tmp_path, Target(), variant, *sides)
    assert chosen == [True, False, False]


def test_memory_is_sound_after_a_call_that_failed_and_whose_error_is_kept(tmp_path: Path) -> None:
    """What an error holds is freed in any order; pools that go before what lies in them end the process."""
    code = """
        import gc, sys
        from pathlib import Path
        import numpy as np
        from collage_evo.backends.base import Target
        from collage_evo.backends.registry import get_backend
        from collage_evo.graph.convert.read import build_graph
        from collage_evo.testing.cases import CASES

        ncnn = get_backend("ncnn")
        model, folder = CASES["conv_3x3"](), Path(sys.argv[1])
        graph = build_graph(model)
        sides = [[graph.tensors[name] for name in names] for names in (graph.inputs, graph.outputs)]
        ncnn.build(model, Target(), ncnn.variants[0], folder)
        for _ in range(3):
            loaded = ncnn.load(folder, Target(), ncnn.variants[0], *sides)
            read, made = ([np.ones(tensor.shape, np.float32) for tensor in side] for side in sides)
            call = loaded.bind(read, [made[0][..., :-1]])
            try:
                call()
            except Exception as error:
                kept = [error]
                kept.append(kept)
            else:
                raise SystemExit("it did not fail")
            del loaded, call, kept
            gc.collect()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("bias", "taken"), [((8,), True), ((1, 8), False), ((1,), False), ((), False)])
def test_a_product_is_taken_with_the_biases_that_the_converter_knows(
    bias: tuple[int, ...], taken: bool, tmp_path: Path
) -> None:
    b = Builder("product")
    model = b.model(b.op("Gemm", b.input("x", (1, 16)), b.const(weight(16, 8)), b.const(np.ones(bias, np.float32))))
    ncnn, graph = get_backend("ncnn"), build_graph(model)
    assert bool(ncnn.supports(graph, graph.all_nodes)) == taken
    assert isinstance(ncnn.build(model, Target(), ncnn.variant("default"), tmp_path), Built) == taken


def test_a_batch_of_several_samples_is_declined_and_never_bound(tmp_path: Path) -> None:
    ncnn = get_backend("ncnn")

    def model(batch: int) -> onnx.ModelProto:
        b = Builder("batch")
        return b.model(b.op("Conv", b.input("x", (batch, 3, 8, 8)), b.const(weight(4, 3, 3, 3))))

    refused = ncnn.build(model(2), Target(), ncnn.variant("default"), tmp_path)
    assert isinstance(refused, BuildFailure)
    assert "[2, 3, 8, 8]: ncnn runs batches of one sample only" in refused.reason
    assert isinstance(ncnn.build(model(1), Target(), ncnn.variant("default"), tmp_path), Built)
    loaded = ncnn.load(tmp_path, Target(), ncnn.variant("default"), (), ())
    one, two = (
        ([np.ones((n, 3, 8, 8), np.float32)], [np.full((n, 4, 6, 6), np.nan, np.float32)]) for n in (1, 2)
    )
    loaded.bind(*one)()
    assert np.isfinite(one[1][0]).all()
    with pytest.raises(ValueError, match="batches of one sample"):
        loaded.bind(*two)
