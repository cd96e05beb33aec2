"""A trace has the regions in the order in which they ran, and in each the operators that its library tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.profiled import Kernel
from collage_evo.fitness.compile.cache import PieceCache
from collage_evo.fitness.compile.compiler import Compiler
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.bench import random_feeds
from collage_evo.runtime.program import Program
from collage_evo.runtime.trace import Event, named_nodes, trace_artifact
from tests.runtime.helpers import CONVNET, TARGET, alternating, sums, whole
from tests.support.models import chain

RUNS = 3


def traced(folder: Path, program: Program) -> tuple[Event, ...]:
    write_artifact(folder / "a.collage", [Profile(program)], TARGET)
    return trace_artifact(folder / "a.collage", random_feeds(program), runs=RUNS, warmup=1)


def assert_nested(events: tuple[Event, ...]) -> None:
    """Each operator lies within its region, and nothing overlaps beside."""
    end = region_end = -1.0
    for event in events:
        if event.operator:
            assert event.start_us + event.us <= region_end + 1e-3
        else:
            region_end = event.start_us + event.us
        assert event.start_us >= end - 1e-3
        end = event.start_us + (event.us if event.operator else 0.0)


def test_regions_of_several_libraries_have_their_operators_in_order(cache: Path, tmp_path: Path) -> None:
    program = alternating(chain(3), cache, ("onnxruntime", "openvino"))
    events = traced(tmp_path, program)
    regions = [event for event in events if not event.operator]
    count = len(program.pieces)
    assert [(event.run, event.region) for event in regions] == [(r, k) for r in range(RUNS) for k in range(count)]
    assert [event.library for event in regions[:2]] == ["onnxruntime", "openvino"]
    assert all(event.nodes == program.pieces[event.region].nodes for event in regions)
    assert {event.thread for event in events} == {events[0].thread}
    assert events[0].start_us == 0.0
    assert_nested(events)
    kinds = {(event.library, event.operator) for event in events}
    assert ("onnxruntime", "Conv") in kinds
    assert {event.placed for event in events if event.operator and event.library == "onnxruntime"} == {False}
    assert {event.placed for event in events if event.operator and event.library == "openvino"} <= {True}
    assert {event.precision for event in events if event.operator in ("Conv", "Convolution")} == {"float32"}


def test_what_the_body_of_a_loop_takes_is_the_loop_s(cache: Path, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]> g (float[4] x) => (float[4] y) {
            n = Constant <value_int = 3> ()
            c = Constant <value = bool {1}> ()
            y = Loop (n, c, x) <body = b (int64 i, bool d, float[4] s) => (bool e, float[4] t) {
                e = Identity (d)
                t = Relu (s)
            }>
        }"""
    )
    events = traced(tmp_path, whole(model, cache, "onnxruntime"))
    assert_nested(events)
    assert [event.operator for event in events if event.operator] == ["Loop"] * RUNS


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_operators_of_a_whole_model_name_its_nodes(backend: str, cache: Path, tmp_path: Path) -> None:
    program = whole(CONVNET, cache, backend)
    events = traced(tmp_path, program)
    assert_nested(events)
    runs = [[event.label for event in events if event.run == run and event.operator] for run in range(RUNS)]
    assert runs[0]
    assert runs == [runs[0]] * RUNS
    named = {name for event in events if event.operator for name in event.nodes}
    assert named
    assert named <= {node.name for node in CONVNET.graph.node}


@pytest.mark.parametrize(("variant", "kinds"), [("default", {"", "Relu", "Mul"}), ("as-it-comes", {""})])
def test_a_variant_that_is_not_profiled_has_its_region_alone(
    variant: str, kinds: set[str], cache: Path, tmp_path: Path
) -> None:
    program = Compiler(TARGET, PieceCache(cache, 2**30)).whole(sums(2), "onnxruntime", variant)
    found = {event.operator for event in traced(tmp_path, program)}
    assert found >= kinds
    assert (len(found) == 1) == (kinds == {""})


def test_a_model_with_open_shapes_runs_on_any_of_them(cache: Path, tmp_path: Path) -> None:
    write_artifact(tmp_path / "a.collage", [Profile(whole(sums("rows"), cache))], TARGET)
    feeds = {"x": np.ones((5, 4), np.float32), "k": np.ones(1, np.int64)}
    events = trace_artifact(tmp_path / "a.collage", feeds, runs=RUNS)
    assert_nested(events)
    assert {event.operator for event in events if event.run == 1} >= {"", "Relu", "Mul"}


@pytest.mark.parametrize(
    ("label", "nodes"),
    [
        ("/layer1/Conv/WithoutBiases,/layer1/Relu", ("/layer1/Conv", "/layer1/Relu")),
        ("conv1_out_nchwc", ("conv1",)),
        ("reorder_token_3", ()),
        ("Multiply_38242", ()),
        ("conv1_out,conv1_out_nchwc", ("conv1",)),
    ],
)
def test_parts_that_a_library_added_to_a_name_are_left_out(label: str, nodes: tuple[str, ...]) -> None:
    names = {name: name for name in ("/layer1/Conv", "/layer1/Relu", "conv1")} | {"conv1_out": "conv1"}
    assert named_nodes(names, [Kernel(label, "Conv", 1.0)]) == [nodes]
