"""ncnn's variants: what is compiled for one of them runs as the other too, each with its own convolutions."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import BuildFailure, Built
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo.testing.cases.case import weight
from tests.backends.pieces import borders, build, loaded, outputs

NCNN = get_backend("ncnn")


def test_winograd_is_chosen_where_a_piece_is_loaded(tmp_path: Path) -> None:
    model = CASES["conv_3x3"]()
    assert isinstance(build(NCNN, model, tmp_path, "sgemm"), Built)
    pieces = [loaded(NCNN, model, tmp_path, variant) for variant in ("default", "sgemm", "sgemm~other-form")]
    assert [piece.network.net.opt.use_winograd_convolution for piece in pieces] == [True, False, False]


def test_memory_is_sound_after_a_call_that_failed_and_whose_error_is_kept(tmp_path: Path) -> None:
    """What an error holds is freed in any order; pools that go before what lies in them end the process."""
    code = """
        import gc, sys
        from pathlib import Path
        import numpy as np
        from collage_evo.testing.cases import CASES
        from tests.backends.pieces import borders, build, loaded, usable

        model, ncnn, folder = CASES["conv_3x3"](), usable("ncnn"), Path(sys.argv[1])
        build(ncnn, model, folder)
        for _ in range(3):
            piece = loaded(ncnn, model, folder)
            read, made = ([np.ones(tensor.shape, np.float32) for tensor in side] for side in borders(model))
            call = piece.bind(read, [made[0][..., :-1]])
            try:
                call()
            except Exception as error:
                kept = [error]
                kept.append(kept)
            else:
                raise SystemExit("it did not fail")
            del piece, call, kept
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
    graph = build_graph(model)
    assert bool(NCNN.supports(graph, graph.all_nodes)) == taken
    assert isinstance(build(NCNN, model, tmp_path), Built) == taken


def test_a_batch_of_several_samples_is_declined_and_never_bound(tmp_path: Path) -> None:
    def model(batch: int) -> onnx.ModelProto:
        b = Builder("batch")
        return b.model(b.op("Conv", b.input("x", (batch, 3, 8, 8)), b.const(weight(4, 3, 3, 3))))

    refused = build(NCNN, model(2), tmp_path)
    assert isinstance(refused, BuildFailure)
    assert "[2, 3, 8, 8]: ncnn runs batches of one sample only" in refused.reason
    assert np.isfinite(outputs(NCNN, model(1), tmp_path)).all()
    two = [[np.ones(tensor.shape, np.float32) for tensor in side] for side in borders(model(2))]
    with pytest.raises(ValueError, match="batches of one sample"):
        loaded(NCNN, model(1), tmp_path).bind(*two)
