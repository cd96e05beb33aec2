"""The oneDNN backend keeps the contract on the kernels that it binds, and takes nothing else."""

from __future__ import annotations

import pytest

from collage_evo.backends.onednn.backend import OneDnnBackend
from collage_evo.graph.read import build_graph
from collage_evo.testing.cases import CASES
from collage_evo.testing.conformance import Effort
from collage_evo.testing.pytest_backend import BackendConformance

TAKEN = {
    *("conv_1x1", "conv_3x3", "conv_no_bias", "conv_odd_channels", "conv_7x7_stride", "conv_asymmetric_pads"),
    *("conv_dilated", "conv_grouped", "conv_depthwise", "conv_1d", "conv_3d", "conv_3d_groups", "conv_relu"),
    *("gemm", "gemm_rows", "gemm_no_bias", "matmul_constant", "matmul_row", "layer_normalization"),
}
REFUSED = {
    "conv_same_upper": "padding",
    "conv_computed_weight": "computed",
    "gemm_scaled": "alpha",
    "matmul_two_inputs": "constant matrix",
    "relu": "one kernel",
    "two_outputs_in_a_row": "wanted elsewhere",
    "max_pool": "not among the kernels",
    "residual_block": "one kernel",
}


class TestConformance(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> OneDnnBackend:
        backend = OneDnnBackend()
        probe = backend.probe()
        if not probe.available:
            pytest.skip(probe.reason)
        return backend

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(examples=1, per_pattern=1)


@pytest.mark.parametrize("case", sorted(TAKEN))
def test_kernels_are_taken(case: str) -> None:
    graph = build_graph(CASES[case]())
    verdict = OneDnnBackend().supports(graph, graph.all_nodes)
    assert verdict, verdict.reason


@pytest.mark.parametrize(("case", "reason"), REFUSED.items())
def test_all_else_is_refused_with_the_reason(case: str, reason: str) -> None:
    graph = build_graph(CASES[case]())
    verdict = OneDnnBackend().supports(graph, graph.all_nodes)
    assert not verdict
    assert reason in verdict.reason
