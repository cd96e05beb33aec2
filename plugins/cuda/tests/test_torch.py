"""The PyTorch backend keeps the contract: every case eagerly, and compiled what stands for the kinds of regions."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.base import Built, Target
from collage_evo.backends.variants import DEFAULT, Variant
from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.graph.ir.windows import spatial_pads
from collage_evo.models.builder import Builder
from collage_evo.models.builtin import make_builtin
from collage_evo.testing.cases import CASES
from collage_evo.testing.conformance import Effort
from collage_evo.testing.finding import Report
from collage_evo.testing.pytest_backend import BackendConformance
from collage_evo_cuda.torch.archive import require_unpickled
from collage_evo_cuda.torch.backend import TorchBackend
from collage_evo_cuda.torch.operators import window_counts


class Eager(TorchBackend):
    variants = (Variant("eager"),)

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        return self.variants


class Compiled(Eager):
    variants = (DEFAULT,)


def usable(backend: TorchBackend) -> TorchBackend:
    probe = backend.probe()
    if not probe.available:
        pytest.skip(probe.reason)
    return backend


class TestEager(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> TorchBackend:
        return usable(Eager())

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(examples=1, per_pattern=1)

    def test_takes_every_case(self, backend: TorchBackend, report: Report) -> None:
        graphs = {name: build_graph(make()) for name, make in CASES.items()}
        assert not {name for name, graph in graphs.items() if not backend.supports(graph, graph.all_nodes)}
        assert not [f for f in report.findings if f.check == "build" and f.status == "declined" and f.case in CASES]


class TestCompiled(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> TorchBackend:
        return usable(Compiled())

    @pytest.fixture(scope="class")
    @classmethod
    def models(cls) -> Mapping[str, onnx.ModelProto]:
        return {name: CASES[name]() for name in ("residual_block", "attention", "bottleneck_clipped")}

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(cases=False, examples=0, per_pattern=1)


def test_a_light_operator_alone_is_not_worth_compiling() -> None:
    relu, convolution = (build_graph(CASES[name]()) for name in ("relu", "conv_3x3"))
    assert offered(relu) == [Variant("eager")]
    assert offered(convolution) == [DEFAULT, Variant("eager")]


def offered(graph: Graph) -> list[Variant]:
    return list(TorchBackend().variants_of(graph, graph.all_nodes))


def test_a_model_of_an_old_opset_is_taken_whole(tmp_path: Path) -> None:
    _, model = make_builtin("builtin:squeezenet", 0)
    assert isinstance(usable(Eager()).build(model, Target(), Variant("eager"), tmp_path), Built)


def archive(tmp_path: Path, entries: Mapping[str, str]) -> Path:
    path = tmp_path / "eager.pt2"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in entries.items():
            file.writestr(f"eager/{name}", text)
    return path


def weights(*, pickled: bool) -> str:
    return json.dumps({"config": {"c0": {"path_name": "weight_0", "use_pickle": pickled}}})


CONFIG, EXAMPLES = "data/weights/model_weights_config.json", "data/sample_inputs/model.pt"


def test_an_archive_of_plain_bytes_is_loaded(tmp_path: Path) -> None:
    require_unpickled(archive(tmp_path, {CONFIG: weights(pickled=False), EXAMPLES: ""}))


@pytest.mark.parametrize(
    "entries", [{CONFIG: weights(pickled=True)}, {EXAMPLES: "x"}, {"data/weights/model.pt": "x"}]
)
def test_an_archive_with_something_pickled_is_refused(tmp_path: Path, entries: Mapping[str, str]) -> None:
    with pytest.raises(InputError, match=next(iter(entries))):
        require_unpickled(archive(tmp_path, entries))


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"model\.pt2"):
        require_unpickled(path)


def test_windows_beyond_the_padding_count_what_is_there() -> None:
    assert window_counts([5], [3], [2], ([1], [1]), [3], padding_counts=False).tolist() == [2, 3, 2]
    assert window_counts([5], [3], [2], ([1], [1]), [3], padding_counts=True).tolist() == [3, 3, 3]
    assert window_counts([6], [3], [2], ([0], [0]), [3], padding_counts=True).tolist() == [3, 3, 2]
    outer = window_counts([2, 3], [2, 2], [1, 1], ([0, 0], [0, 0]), [1, 2], padding_counts=True)
    assert np.array_equal(outer, [[4, 4]])


@pytest.mark.parametrize(("how", "pads"), [("SAME_UPPER", ([0], [1])), ("SAME_LOWER", ([1], [0]))])
def test_padding_to_the_same_size_puts_the_odd_one_where_it_is_asked_to(
    how: str, pads: tuple[list[int], list[int]]
) -> None:
    b = Builder("same")
    graph = build_graph(b.model(b.op("MaxPool", b.input("x", (1, 1, 5)), kernel_shape=[2], auto_pad=how)))
    assert spatial_pads(graph, graph.nodes[0], [2]) == pads
