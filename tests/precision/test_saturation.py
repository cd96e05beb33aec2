"""int8 on processors that add neighbouring products in 16 bits: no sum saturates, whatever the activations.

Activations are all at their largest integer, weights at theirs, in every arrangement that some order of a library
adds pairwise. Each backend computes this as the processor does; held to AVX2 where the machine has more.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.checks import numerics_in
from collage_evo.backends.registry import get_backend
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import Processor, this_machine
from collage_evo.hardware.target import Target
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.rounded import usual_scales
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.quantise.scales import largest_pairs, largest_two, weight_scales
from collage_evo.precision.transforms.piece import EditedRegion
from collage_evo.precision.transforms.transform import Data

Net = Callable[[Builder], str]
PATTERNS: Mapping[str, Callable[[int], np.ndarray]] = {
    "ones": lambda n: np.ones(n),
    "minus": lambda n: -np.ones(n),
    "even": lambda n: 1.0 - np.arange(n) % 2,
    "odd": lambda n: np.arange(n) % 2.0,
    "pairs": lambda n: (np.arange(n) % 4 < 2).astype(float),
    "small": lambda n: np.where(np.arange(n) % 2, 0.3, 1.0),
}


def convolution(shape: tuple[int, ...], kernel: tuple[int, ...], pattern: str, last: bool, group: int = 1) -> Net:
    """``last``: the pattern goes along the kernel's places with the channels last, else along the channels."""
    read = shape[1] // group
    made = 64
    numbers = PATTERNS[pattern]

    def make(b: Builder) -> str:
        if last:
            one = np.moveaxis(numbers(read * int(np.prod(kernel))).reshape(*kernel, read), -1, 0)
        else:
            one = np.broadcast_to(numbers(read).reshape(read, *[1] * len(kernel)), (read, *kernel))
        weights = np.repeat(one[None], made, axis=0).astype(np.float32)
        return b.op("Conv", b.input("x", shape), b.const(weights), pads=[0] * 2 * len(kernel), group=group)

    return make


def product(rows: int, inner: int, pattern: str) -> Net:
    def make(b: Builder) -> str:
        weights = np.repeat(PATTERNS[pattern](inner)[:, None], 192, axis=1).astype(np.float32)
        return b.op("MatMul", b.input("x", (1, rows, inner)), b.const(weights))

    return make


def transposed(pattern: str) -> Net:
    def make(b: Builder) -> str:
        one = PATTERNS[pattern](64).reshape(64, 1, 1, 1)
        weights = np.broadcast_to(one, (64, 32, 2, 2)).astype(np.float32)
        return b.op("ConvTranspose", b.input("x", (1, 64, 8, 8)), b.const(weights), strides=[2, 2])

    return make


KINDS: Mapping[str, Mapping[str, Net]] = {
    **{
        kind: {
            f"{pattern} {'channels last' if last else 'channels'}": convolution(*how, pattern, last)
            for pattern, last in itertools.product(PATTERNS, (False, True))
        }
        for kind, how in {
            "3x3 of 64": ((1, 64, 14, 14), (3, 3)),
            "3x3 of 3": ((1, 3, 28, 28), (3, 3)),
            "3x3 of 33": ((1, 33, 14, 14), (3, 3)),
            "1x1 of 65": ((1, 65, 14, 14), (1, 1)),
            "5 of 64": ((1, 64, 50), (5,)),
            "3x3x3 of 32": ((1, 32, 6, 6, 6), (3, 3, 3)),
        }.items()
    },
    "3x3 in 4 groups": {one: convolution((1, 64, 14, 14), (3, 3), one, False, 4) for one in PATTERNS},
    "depthwise": {one: convolution((1, 64, 14, 14), (3, 3), one, True, 64) for one in PATTERNS},
    **{f"product of {rows} rows": {one: product(rows, 255, one) for one in PATTERNS} for rows in (3, 64)},
    "transposed": {one: transposed(one) for one in PATTERNS},
}
"""By what they read: those of a kind are built side by side in one model."""


class OneInput(Builder):
    """All nets read the same input."""

    def input(self, name: str, shape: Sequence[int | str], dtype: int = onnx.TensorProto.FLOAT) -> str:
        return name if self._inputs else super().input(name, shape, dtype)


def _in_int8(variant: Variant) -> bool:
    """Whether it multiplies integers by scales of ours."""
    return variant.int8_form is not None or variant.arithmetic is Arithmetic.INT8_ROWS


def errors(backend_name: str, folder: Path) -> dict[str, float]:
    """The error of each net in each int8 variant of a backend, relative to the largest output."""
    found = {}
    backend, target = get_backend(backend_name), Target.here("cpu", 1)
    for kind, nets in KINDS.items():
        b = OneInput("saturating")
        graph = build_graph(b.model(*[make(b) for make in nets.values()]))
        feeds = {given: np.ones(graph.tensors[given].shape, np.float32) for given in graph.inputs}
        wanted = dict(zip(graph.outputs, reference_outputs(graph.model, feeds), strict=True))
        largest = {name: float(np.abs(want).max()) for name, want in wanted.items()}
        ranges = dict.fromkeys(graph.inputs, Range(0.0, 1.0))
        ranges |= {name: Range(-most, most) for name, most in largest.items()}
        for variant in (one for one in backend.variants if _in_int8(one) and one.base in ("default", one.name)):
            if backend.declines(variant) or not (numerics := numerics_in(graph, graph.all_nodes, variant, ranges)):
                continue
            model = EditedRegion(graph, graph.all_nodes, numerics, Data(ranges, variant.int8_form)).model()
            base, place = backend.variant(variant.base), folder / f"{len(found)}"
            place.mkdir()
            built = backend.build(model, target, base, place)
            assert hasattr(built, "files"), built
            borders = ([graph.tensors[one] for one in names] for names in (graph.inputs, graph.outputs))
            outputs = backend.load(place, target, base, *borders).run(list(feeds.values()))
            for net, got, (name, want) in zip(nets, outputs, wanted.items(), strict=True):
                found[f"{kind} {net}, {variant.name}"] = float(np.abs(got - want).max()) / largest[name]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("level", ["avx2", "avx512", ""])
def test_no_sum_saturates(backend: str, level: str, tmp_path: Path) -> None:
    """Each level in a process of its own, as a process is held once."""
    if level and this_machine().lacks(LEVELS[level]):
        pytest.skip("this processor does not reach the level")
    code = (
        "import sys; from pathlib import Path; from tests.precision.test_saturation import errors\n"
        "found = errors(sys.argv[1], Path(sys.argv[2]))\n"
        "assert len(found) > 50, len(found)\n"
        "print({name: error for name, error in found.items() if error > 0.02})"  # int8's own rounding is 0.008
    )
    done = subprocess.run(
        [sys.executable, "-c", code, backend, str(tmp_path)], cwd=Path(__file__).parents[2],
        env={**os.environ, **({SWITCH: level} if level else {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{}"


def graph_of(make: Net) -> Graph:
    b = Builder("net")
    return build_graph(b.model(make(b)))


def saturating(monkeypatch: pytest.MonkeyPatch, does: bool) -> None:
    features = frozenset({"avx2"} if does else {"avx2", "avx_vnni"})
    here = Processor("x86_64", "some", features)
    monkeypatch.setattr("collage_evo.precision.quantise.rounded.this_machine", lambda: here)


@pytest.mark.parametrize(
    ("make", "coarser"),
    [
        (convolution((1, 64, 8, 8), (3, 3), "ones", False), 2.0),
        (convolution((1, 64, 8, 8), (3, 3), "even", False), 1.0),
        (convolution((1, 64, 8, 8), (3, 3), "small", False), 1.3),
        (convolution((1, 64, 8, 8), (3, 3), "ones", False, 64), 1.0),
        (product(4, 64, "ones"), 2.0),
        (product(4, 64, "even"), 1.0),
        (transposed("even"), 2.0),
    ],
)
def test_scales_grow_by_as_much_as_pairs_need(monkeypatch: pytest.MonkeyPatch, make: Net, coarser: float) -> None:
    saturating(monkeypatch, False)
    (fine,) = (usual_scales(graph, graph.nodes[0]) for graph in [graph_of(make)])
    saturating(monkeypatch, True)
    (fitting,) = (usual_scales(graph, graph.nodes[0]) for graph in [graph_of(make)])
    np.testing.assert_allclose(fitting / fine, coarser, rtol=1e-6)


def test_pairs_of_unlike_sign_need_no_room() -> None:
    weights = np.array([[1.0, -1.0, 0.5, 0.25]], np.float32)
    np.testing.assert_allclose(largest_pairs(weights), 1.0)
    np.testing.assert_allclose(largest_two(weights), 1.5)
    np.testing.assert_allclose(weight_scales(weights, 0), 1 / 127)


def test_only_x86_without_vnni_saturates() -> None:
    def saturates(architecture: str, *features: str) -> bool:
        return Processor(architecture, "some", frozenset(features)).saturates_int8

    assert saturates("x86_64", "avx2")
    assert saturates("x86_64", "avx2", "avx512f", "avx512bw")
    assert not saturates("x86_64", "avx2", "avx_vnni")
    assert not saturates("x86_64", "avx512f", "avx512_vnni")
    assert not saturates("aarch64", "asimd")
