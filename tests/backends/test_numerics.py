"""What a backend takes it does as the contract says; what it cannot do it refuses beforehand."""

from __future__ import annotations

import math

import pytest

from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.graph.convert.read import build_graph
from collage_evo.testing.cases import CASES
from collage_evo.testing.conformance import Effort
from collage_evo.testing.finding import Report
from collage_evo.testing.pytest_backend import BackendConformance

BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")

EXPECTED_REFUSALS = {
    "onnxruntime": set(),
    # Its LRN cuts a fractional bias down to an integer.
    "openvino": {"lrn", "lrn_behind_conv"},
    "ncnn": {
        *("conv_same_lower", "average_pool_same_upper", "conv_batch_two", "conv_computed_weight"),
        *(name for name in CASES if "3d" in name),  # It takes up to four axes.
        *("gemm_rows", "pad_constant", "reduce_all", "reduce_all_behind_conv", "gather_embedding", "arg_max"),
        *("cast_compare_where", "greater", "unsqueeze_squeeze", "attention_with_an_expanded_mask"),
        *("gemm_wide", "wide_products_of_one_input"),
    },
    "tvm": {"residual_block_sum", "arg_max", "attention_with_an_expanded_mask"},
}
"""What each backend declines. Anything else must be taken: a refusal too many is a speed-up lost unseen."""


# Its fixture compiles hundreds of pieces: 15 to 90 s alone, more than the usual 300 s beside busy processes.
@pytest.mark.timeout(1200)
@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS, scope="class")
class TestConformance(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls, name: str) -> Backend:
        backend = get_backend(name)
        probe = backend.probe()
        if not probe.available:
            pytest.skip(f"{name}: {probe.reason}")
        return backend

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(examples=1, per_pattern=1, precisions=2, seconds=math.inf)

    def test_declines_what_is_expected(self, backend: Backend, report: Report) -> None:
        graphs = {name: build_graph(make()) for name, make in CASES.items()}
        refused = {name for name, graph in graphs.items() if not backend.supports(graph, graph.all_nodes)}
        assert refused == EXPECTED_REFUSALS[backend.name]
        assert report.count("build", "passed") > len(CASES) / 2
        unbuilt = [f for f in report.findings if f.check == "build" and f.status == "declined"]
        assert not [f for f in unbuilt if f.case.partition(" [")[0] in CASES.keys() - refused]
