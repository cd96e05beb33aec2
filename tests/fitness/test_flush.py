"""How much is read between two runs of a match: as much as the rest of the model touches."""

import os
import random

import numpy as np
import onnx
import pytest

from collage_evo.fitness.cold_caches import (
    LINE_BYTES,
    MOST_FLUSH_BYTES,
    Flush,
    Widths,
    flush_bytes,
    touched_bytes,
    widths_of,
)
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet, members, node_set
from collage_evo.graph.ir.operators import HEAVY
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.precision.transforms.edits import Numerics, numerics_of
from tests.support.models import chain, random_dag, tiny_transformer
from tests.support.numerics import in_bfloat16, in_int8

GRAPH = build_graph(chain(3))
FULL = Widths()


def test_nothing_lies_between_two_runs_of_the_whole_model() -> None:
    assert flush_bytes(GRAPH, GRAPH.all_nodes, FULL) == 0


def test_a_part_is_paid_as_cold_as_the_rest_makes_it() -> None:
    activation, weights = 4 * 8 * 8 * 4, (4 * 4 * 3 * 3 + 4) * 4
    assert touched_bytes(GRAPH, 0b11, FULL) == 2 * activation + weights
    assert flush_bytes(GRAPH, 0b11, FULL) == touched_bytes(GRAPH, 0b111100, FULL) == 2 * activation + 2 * weights


def test_tensors_that_lie_in_the_same_memory_are_touched_once() -> None:
    """A model of many layers works in the memory of two of its tensors, and caches are as cold as that makes them."""
    deep = build_graph(chain(40))
    constants = touched_bytes(deep, deep.all_nodes, FULL) - touched_bytes(GRAPH, GRAPH.all_nodes, FULL)
    assert constants == 37 * (4 * 4 * 3 * 3 + 4) * 4


@pytest.mark.parametrize(
    ("variant", "numerics", "weights", "others"),
    [
        ("default", (), 4, 4),
        ("bf16", (), 2, 2),
        ("default", in_int8(1), 1, 4),
        ("bf16", in_int8(1), 1, 2),
        ("default", in_bfloat16(1), 2, 2),
        ("default", numerics_of((Arithmetic.INT8_WEIGHTS, 1)), 1, 4),
    ],
)
def test_lower_precisions_leave_more_of_the_caches_to_others(
    variant: str, numerics: Numerics, weights: int, others: int
) -> None:
    widths = widths_of("openvino", variant, numerics)
    filters, biases, activations = 4 * 4 * 3 * 3, 4, 2 * 4 * 8 * 8
    assert touched_bytes(GRAPH, 0b11, widths) == weights * filters + others * (biases + activations)
    assert flush_bytes(GRAPH, 0b111100, widths) == touched_bytes(GRAPH, 0b11, widths)


def test_an_optional_input_that_is_left_out_takes_no_memory() -> None:
    net = Builder("clipped")
    x = net.input("x", (1, 8))
    graph = build_graph(net.model(net.op("Clip", x, "", net.const(np.float32(6)))))
    assert touched_bytes(graph, graph.all_nodes, FULL) == 2 * 8 * 4 + 4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("nbytes", [0, 100, 10**6, MOST_FLUSH_BYTES])
def test_any_amount_is_read_on_any_number_of_threads(threads: int, nbytes: int) -> None:
    assert Flush(threads).read(nbytes) == pytest.approx(nbytes, abs=LINE_BYTES * threads)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_thread_reads_on_a_core_of_its_own() -> None:
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    os.sched_setaffinity(0, cores)
    known = set(os.listdir("/proc/self/task"))
    flush = Flush(2)  # whose thread ends with it
    flush.read(10**6)
    (helper,) = set(os.listdir("/proc/self/task")) - known
    assert os.sched_getaffinity(int(helper)) == {cores[1]}
    assert os.sched_getaffinity(0) == set(cores)


def walked(graph: Graph, nodes: NodeSet, widths: Widths) -> int:
    """What ``touched_bytes`` says, found by walking through the nodes."""
    chosen = [graph.nodes[index] for index in members(nodes)]
    touched = [{name for name in (*node.inputs, *node.outputs) if name} - set(graph.constants) for node in chosen]
    weights = {name for node in chosen if node.op_type in HEAVY for name in node.inputs[1:2]}

    def held(name: str, width: int) -> int:
        tensor = graph.tensors[name]
        return tensor.nbytes * width // 4 if tensor.dtype == "float32" else tensor.nbytes

    needed = [
        sum(held(name, widths.others) for name in set().union(*touched[: at + 1]) & set().union(*touched[at:]))
        for at in range(len(chosen))
    ]
    read = {name for node in chosen for name in node.inputs if name in graph.constants}
    constants = (held(name, widths.weights if name in weights else widths.others) for name in read)
    return max(needed, default=0) + sum(constants)


@pytest.mark.parametrize("model", [tiny_transformer(), random_dag(0, 40), random_dag(1, 40)])
def test_what_any_nodes_touch_is_as_if_walked_through(model: onnx.ModelProto) -> None:
    graph, rng = build_graph(model), random.Random(0)
    for widths in (FULL, Widths(1, 2)):
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            nodes = node_set(node.index for node in graph.nodes if rng.random() < share)
            assert touched_bytes(graph, nodes, widths) == walked(graph, nodes, widths)
