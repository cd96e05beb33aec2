"""What each operator adds to the error: takes a graph, ranges and samples, gives a share for each operator.

A placement's error is about the root of the sum of its operators' shares. One float32 model has a switch at each
operator, so that one operator at a time computes on rounded numbers.
"""

from __future__ import annotations

import copy
import math
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.ir import COMPOSITE, Graph, Node, NodeSet, members, node_set
from collage_evo.graph.operators import HEAVY
from collage_evo.graph.reference import Reference, counted_distances, holds_labels
from collage_evo.quantise.arithmetic import PACKED, Arithmetic
from collage_evo.quantise.bias import corrected_bias
from collage_evo.quantise.packable import packable
from collage_evo.quantise.rules import (
    PASSING,
    Quantisers,
    Ranges,
    correcting_means,
    opset,
    quantisable,
    quantised_inputs,
    scale_source,
    weight_axis,
)
from collage_evo.quantise.scales import activation_scale, quantise_weights, weight_scales
from collage_evo.quantise.weights import import_contributed, packed_product

_NO_BFLOAT16 = 13
"""Before this operator set Cast has no bfloat16."""


class Shares(dict[Arithmetic, tuple[float, ...]]):
    """By arithmetic, for each node the squared relative error that it alone adds at the model's outputs, as
    ``accuracy/judge.py`` has it without a metric: of the 2-norm, and where outputs are labels the share that differs.

    ``estimated`` of them, over all arithmetics, were not measured.
    """

    estimated: int = 0


@dataclass(frozen=True)
class _Trial:
    """One operator run in one arithmetic, all else in float32."""

    node: int
    arithmetic: Arithmetic
    heavy: bool


def error_shares(
    graph: Graph,
    ranges: Ranges,
    feeds: Sequence[Mapping[str, Any]],
    threads: int = 1,
    seconds: float = math.inf,
    wanted: Mapping[Arithmetic, NodeSet] | None = None,
) -> Shares:
    """The share of each node in each lower arithmetic; 0 where it is not run so.

    In int8 a node reads rounded activations and weights; what only passes values on rounds nothing that its readers
    would not. Weights in int8 are read by the very operators that are written into pieces. In bfloat16 a node's
    weights and its outputs are rounded, and what it reads of the model's inputs, which no other operator rounds.
    float16 is taken to err like bfloat16 with eight times finer rounding, and so is TF32, in which only heavy
    operators compute.

    Args:
        graph: the normalised model.
        ranges: of its activations; without them nothing is in int8.
        feeds: one or two samples, by input name.
        threads: that ONNX Runtime may use.
        seconds: no further operator is tried after so long. The rest gets the median of those of its kind that were
            tried, or the arithmetic's own roundoff squared.
        wanted: nodes by arithmetic, if not all: the others have no share.

    Raises:
        InputError: the model does not run on ``feeds``.
    """
    end = time.monotonic() + seconds
    asked = dict.fromkeys(Arithmetic, graph.all_nodes) if wanted is None else wanted
    in_int8 = _in_int8(graph, ranges) & asked.get(Arithmetic.INT8, 0)
    in_tf32 = _heavy(graph) & asked.get(Arithmetic.TF32, 0)
    in_bfloat16 = asked.get(Arithmetic.BFLOAT16, 0) | asked.get(Arithmetic.FLOAT16, 0) | in_tf32
    packed = {kind: packable(graph, asked.get(kind, 0)) for kind in PACKED}
    trials = list(_trials(graph, in_int8, in_bfloat16, packed))
    random.Random(0).shuffle(trials)  # those left out are like those tried
    trials.sort(key=lambda trial: not trial.heavy)
    reference = Reference(_with_switches(graph, in_int8, in_bfloat16, packed, ranges), threads)
    exact = [reference.run(sample) for sample in feeds]
    labels = [holds_labels(output) for output in zip(*exact, strict=True)]
    found: dict[_Trial, float] = {}
    for trial in trials:
        if time.monotonic() > end:
            break
        switched = _switched(graph, trial, ranges)
        runs = (reference.run({**sample, **switched}) for sample in feeds)
        # From there on nothing is left of the outputs.
        errors = [min(_error(*pair, labels), 1.0) ** 2 for pair in zip(runs, exact, strict=True)]
        found[trial] = math.fsum(errors) / len(errors)
    return _complete(graph, trials, found)


def _error(found: Sequence[Any], exact: Sequence[Any], labels: Sequence[bool]) -> float:
    """Of the output that is farthest off; ``labels`` says which outputs hold such.

    Labels flip where the noise before them is larger than what decided them: as long as few do, their share grows
    with the noise's 2-norm, so that its squares add up as well. A share of zero says that none of few samples' labels
    flipped, not that none will.
    """
    outputs = zip(found, exact, labels, strict=True)
    return max((one.error.relative for output in outputs for one in counted_distances(*output)), default=0.0)


def _heavy(graph: Graph) -> NodeSet:
    return node_set(node.index for node in graph.nodes if node.op_type in HEAVY)


def _in_int8(graph: Graph, ranges: Ranges) -> NodeSet:
    """Nodes that some library runs in int8."""
    static = (Quantisers.INPUTS, Quantisers.BOTH)
    found = quantisable(graph, graph.all_nodes, Quantisers.DYNAMIC)
    for quantisers in static:
        for node in graph.nodes:  # each alone: whether it pays beside others is no matter here
            found |= quantisable(graph, 1 << node.index, quantisers, True, ranges)
    calibrated = (node for node in members(found) if _known(graph, graph.nodes[node], ranges))
    return sum(1 << index for index in calibrated if graph.nodes[index].op_type not in PASSING)


def _known(graph: Graph, node: Node, ranges: Ranges) -> bool:
    return all(scale_source(graph, node.inputs[position]) in ranges for position in quantised_inputs(graph, node))


def _trials(
    graph: Graph, in_int8: NodeSet, in_bfloat16: NodeSet, packed: Mapping[Arithmetic, NodeSet]
) -> Iterator[_Trial]:
    for node in graph.nodes:
        heavy = node.op_type in HEAVY
        if in_int8 >> node.index & 1:
            yield _Trial(node.index, Arithmetic.INT8, heavy)
        if in_bfloat16 >> node.index & 1 and _float_outputs(graph, node):
            yield _Trial(node.index, Arithmetic.BFLOAT16, heavy)
        yield from (_Trial(node.index, kind, heavy) for kind, nodes in packed.items() if nodes >> node.index & 1)


def _float_outputs(graph: Graph, node: Node) -> list[str]:
    if node.domain == COMPOSITE or opset(graph) < _NO_BFLOAT16:
        return []
    return [name for name in node.outputs if name and graph.tensors[name].dtype == "float32"]


def _with_switches(
    graph: Graph, in_int8: NodeSet, in_bfloat16: NodeSet, packed: Mapping[Arithmetic, NodeSet], ranges: Ranges
) -> onnx.ModelProto:
    """The model with a switch for each trial. Switches and weights are inputs with a default: off, and exact."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    made: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    weights: dict[str, None] = {}
    switches: list[str] = []
    for node in graph.nodes:
        own = [copy.deepcopy(proto) for proto in node.protos]
        if in_int8 >> node.index & 1:
            switch = _switch(node, Arithmetic.INT8)
            switches.append(switch)
            for position in quantised_inputs(graph, node):
                scale = activation_scale(*ranges[scale_source(graph, node.inputs[position])][:2])
                parts = f"{switch} {position} scale", f"{switch} {position} zero"
                constants.update(zip(parts, (np.array(scale.scale), np.array(scale.zero_point)), strict=True))
                rounded = f"{switch} {position}"
                made.append(_rounding(own[0].input[position], rounded, switch, "QuantizeLinear", parts))
                own[0].input[position] = rounded
        outputs = _float_outputs(graph, node) if in_bfloat16 >> node.index & 1 else []
        if outputs:
            switches.append(_switch(node, Arithmetic.BFLOAT16))
            for position, name in enumerate(node.inputs):
                if name in graph.inputs and graph.tensors[name].dtype == "float32":
                    rounded = f"{switches[-1]} {position}"
                    made.append(_rounding(own[0].input[position], rounded, switches[-1], "Cast", ()))
                    own[0].input[position] = rounded
        made += own
        for place, name in enumerate(own[0].output):
            if name in outputs:
                own[0].output[place] = f"exact {name}"
                made.append(_rounding(f"exact {name}", name, switches[-1], "Cast", ()))
        plain = copy.deepcopy(own[0])
        for kind in (kind for kind in PACKED if packed[kind] >> node.index & 1):
            switches.append(_switch(node, kind))
            products, numbers = packed_product(plain, graph.constants[node.inputs[1]], kind)
            choice = _choice(switches[-1], own[0].output[0], products, [copy.deepcopy(own[0])], numbers)
            own[0].CopyFrom(choice)
        if node.op_type in HEAVY:
            weights.update({name: None for name in node.inputs[1:] if name in graph.constants})
    del model.graph.node[:]
    model.graph.node.extend(made)
    constants.update({switch: np.array(False) for switch in switches})
    import_contributed(model)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    kinds = {**dict.fromkeys(switches, TensorProto.BOOL), **dict.fromkeys(weights, TensorProto.FLOAT)}
    for name, type_ in kinds.items():
        shape = constants[name].shape if name in constants else graph.constants[name].shape
        model.graph.input.append(helper.make_tensor_value_info(name, type_, shape))
    return model


def _switch(node: Node, arithmetic: Arithmetic) -> str:
    return f"switch {arithmetic.value} {node.index}"


def _rounding(given: str, rounded: str, switch: str, op_type: str, parts: tuple[str, ...]) -> onnx.NodeProto:
    """``given`` there and back through other numbers if ``switch`` is on, else as it is."""
    inner = f"{rounded} inner"
    if op_type == "Cast":
        there = helper.make_node("Cast", [given], [inner], to=TensorProto.BFLOAT16)
        back = helper.make_node("Cast", [inner], [rounded], to=TensorProto.FLOAT)
    else:
        there = helper.make_node(op_type, [given, *parts], [inner])
        back = helper.make_node("DequantizeLinear", [inner, *parts], [rounded])
    return _choice(switch, rounded, [there, back], [helper.make_node("Identity", [given], [rounded])])


def _choice(
    switch: str,
    made: str,
    on: Sequence[onnx.NodeProto],
    off: Sequence[onnx.NodeProto],
    constants: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> onnx.NodeProto:
    """What makes the tensor ``made`` as the last of ``on`` does if ``switch`` is on, else as the last of ``off``.

    ``constants`` are those of ``on``: of what comes from outside, ONNX Runtime does not know that it is constant, and
    multiplies otherwise.
    """
    branches = []
    for word, nodes in (("on", on), ("off", off)):
        nodes[-1].output[0] = inner = f"{switch} {made} {word}"
        value = helper.make_tensor_value_info(inner, TensorProto.FLOAT, None)
        branches.append(helper.make_graph(nodes, inner, [], [value]))
    branches[0].initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return helper.make_node("If", [switch], [made], then_branch=branches[0], else_branch=branches[1])


def _switched(graph: Graph, trial: _Trial, ranges: Ranges) -> dict[str, np.ndarray]:
    """What the trial feeds beside the sample: its switch, its weights as they are rounded, and the bias for these."""
    node = graph.nodes[trial.node]
    found = {_switch(node, trial.arithmetic): np.array(True)}
    axis = weight_axis(graph, node) if trial.heavy else None
    if axis is None or trial.arithmetic in PACKED or (exact := graph.constants[node.inputs[1]]).dtype != np.float32:
        return found
    if trial.arithmetic is Arithmetic.BFLOAT16:
        return found | {node.inputs[1]: exact.astype(ml_dtypes.bfloat16).astype(np.float32)}
    scales = weight_scales(exact, axis)
    numbers = quantise_weights(exact, scales, axis)
    found[node.inputs[1]] = numbers * scales.reshape([-1 if place == axis else 1 for place in range(exact.ndim)])
    if len(node.inputs) > 2 and node.inputs[2] and (means := correcting_means(graph, node, ranges)):
        bias = graph.constants[node.inputs[2]]
        found[node.inputs[2]] = corrected_bias(bias, exact, numbers, scales, axis, np.array(means))
    return found


def _complete(graph: Graph, trials: Sequence[_Trial], found: Mapping[_Trial, float]) -> Shares:
    """All shares, those that were not measured by the median of their kind."""
    shares = Shares()
    shares.estimated = len(trials) - len(found)
    for arithmetic in (Arithmetic.INT8, Arithmetic.BFLOAT16, *PACKED):
        values = [0.0] * len(graph.nodes)
        for trial in (trial for trial in trials if trial.arithmetic is arithmetic):
            alike = (share for other, share in found.items() if (other.arithmetic, other.heavy) == _kind(trial))
            known = found.get(trial)
            values[trial.node] = _typical(list(alike), arithmetic) if known is None else known
        shares[arithmetic] = tuple(values)
    coarse, heavy = shares[Arithmetic.BFLOAT16], _heavy(graph)
    finer = (Arithmetic.FLOAT16.roundoff / Arithmetic.BFLOAT16.roundoff) ** 2
    shares[Arithmetic.FLOAT16] = tuple(share * finer for share in coarse)
    finer = (Arithmetic.TF32.roundoff / Arithmetic.BFLOAT16.roundoff) ** 2
    shares[Arithmetic.TF32] = tuple(share * finer * (heavy >> node & 1) for node, share in enumerate(coarse))
    return shares


def _kind(trial: _Trial) -> tuple[Arithmetic, bool]:
    return trial.arithmetic, trial.heavy


def _typical(shares: Sequence[float], arithmetic: Arithmetic) -> float:
    return statistics.median(shares) if shares else arithmetic.roundoff**2
