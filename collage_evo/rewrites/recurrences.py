"""Rewrite ``unrolled-steps``: a recurrent operator of few steps as products and elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.graph.ir.graph import Graph, Node, NodeSet, members
from collage_evo.rewrites.common import cut, reshape, split, standard
from collage_evo.rewrites.rewrite import Draft, Replacement

MOST_STEPS = {"GRU": 64, "LSTM": 32, "RNN": 64}
"""Longer LSTMs gained nothing in ONNX Runtime and OpenVINO. OpenVINO compiles 64 steps in a second, TVM in seven."""
_SINCE = 11
"""The version of ONNX's operators from which Gemm may add nothing."""
_ACTIVATIONS = {"GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"], "RNN": ["tanh"]}
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_OTHERWISE = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")
"""Attributes that make it another operator, unless they are zero."""
_LENGTHS, _FIRST_STATE, _PEEPHOLES = 4, 5, 7
"""Positions of inputs."""

_Step = Callable[[Sequence[str], tuple[str, ...]], tuple[str, ...]]
"""Writer of a step: from the input's product for each gate and the previous states, none if zero, to the states."""


@dataclass(frozen=True)
class _Direction:
    """A recurrence in one direction; the rows of weights are those of the gates, in ONNX's order."""

    of_input: np.ndarray
    of_state: np.ndarray
    bias: np.ndarray
    """Bias of the sum of both products."""
    inner: np.ndarray
    """The bias that a GRU adds only to the state's product, so that the reset applies to it."""
    backwards: bool


class UnrolledSteps:
    """GRU, LSTM and RNN by their definition: one product of the inputs of all steps, then the steps."""

    name = "unrolled-steps"

    def sites(self, graph: Graph) -> Iterator[NodeSet]:
        if graph.opset < _SINCE:
            return
        for node in graph.nodes:
            if any(standard(node, op_type) for op_type in _GATES) and _usual(graph, node):
                yield 1 << node.index

    def apply(self, graph: Graph, nodes: NodeSet) -> Replacement:
        node, draft = graph.nodes[next(members(nodes))], Draft(graph)
        steps, batch, width = graph.tensors[node.inputs[0]].shape
        x = reshape(draft, node.inputs[0], (steps * batch, width))
        directions, size = _directions(graph, node), graph.constants[node.inputs[2]].shape[2]
        runs = [
            _run(draft, node, direction, x, steps, batch, _initial(graph, draft, node, place))
            for place, direction in enumerate(directions)
        ]
        leaving = graph.boundary(nodes)[1]
        for place, output in enumerate(node.outputs):
            if output in leaving and place:  # the state after the last step, of each direction
                reshape(draft, _joined(draft, [run[-1][place - 1] for run in runs]), (len(runs), batch, size), output)
            elif output in leaving:  # the state after each step
                ends = []
                for run, direction in zip(runs, directions, strict=True):
                    states = [states[0] for states in (run[::-1] if direction.backwards else run)]
                    name = output if len(runs) == 1 else ""
                    ends.append(reshape(draft, _joined(draft, states), (steps, 1, batch, size), name))
                if len(ends) > 1:
                    draft.node("Concat", ends, output, axis=1)
        return draft.finished()


def _usual(graph: Graph, node: Node) -> bool:
    """Whether ``node`` is a recurrence of few steps by constant weights with default attributes."""
    how, inputs = node.attributes, [*node.inputs, *[""] * 8]
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs) if name]
    if any(tensor.dtype != "float32" or 0 in tensor.shape for tensor in tensors) or inputs[0] in graph.constants:
        return False
    if any(name and name not in graph.constants for name in inputs[1:4]) or inputs[_LENGTHS] or inputs[_PEEPHOLES]:
        return False
    named, default = [name.lower() for name in how.get("activations", ())], _ACTIVATIONS[node.op_type]
    if named not in ([], default, default * 2) or any(how.get(name) for name in _OTHERWISE):
        return False
    return graph.tensors[inputs[0]].shape[0] <= MOST_STEPS[node.op_type]


def _directions(graph: Graph, node: Node) -> list[_Direction]:
    of_input, of_state = (graph.constants[name] for name in node.inputs[1:3])
    count, rows, size = of_state.shape
    constant = graph.constants.get(node.inputs[3]) if len(node.inputs) > 3 else None
    biases = (np.zeros((count, 2 * rows), np.float32) if constant is None else constant).reshape(count, 2, rows)
    bias, inner = biases.sum(axis=1), np.zeros((count, size), np.float32)
    if _resets_product(node):
        bias[:, 2 * size :], inner = biases[:, 0, 2 * size :], biases[:, 1, 2 * size :]
    order = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backwards = order[node.attributes.get("direction", "forward")]
    return [_Direction(*parts) for parts in zip(of_input, of_state, bias, inner, backwards, strict=True)]


def _resets_product(node: Node) -> bool:
    """Whether a GRU resets the state's product, and not the state."""
    return node.op_type == "GRU" and bool(node.attributes.get("linear_before_reset", 0))


def _initial(graph: Graph, draft: Draft, node: Node, place: int) -> tuple[str, ...]:
    """States of the direction number ``place`` before its first step; none where all are zero."""
    count, _, size = graph.constants[node.inputs[2]].shape
    names = [*node.inputs, *[""] * 8][_FIRST_STATE : _FIRST_STATE + (2 if node.op_type == "LSTM" else 1)]
    if all(not name or (name in graph.constants and not graph.constants[name].any()) for name in names):
        return ()
    shape = (graph.tensors[node.inputs[0]].shape[1], size)
    states = []
    for name in names:
        if not name or name in graph.constants:
            states.append(draft.constant(graph.constants[name][place] if name else np.zeros(shape, np.float32)))
        else:
            state = name if count == 1 else cut(draft, name, (place,), (place + 1,), (0,))
            states.append(reshape(draft, state, shape))
    return tuple(states)


def _run(
    draft: Draft, node: Node, direction: _Direction, x: str, steps: int, batch: int, states: tuple[str, ...]
) -> list[tuple[str, ...]]:
    """The states after each step, in the order of computation. ``x``: [steps * batch, width]."""
    step, gates, after_steps = _STEPS[node.op_type](draft, node, direction), [], []
    parts = (np.split(array, _GATES[node.op_type]) for array in (direction.of_input, direction.bias))
    for weights, bias in zip(*parts, strict=True):
        y = _product(draft, x, draft.constant(weights), draft.constant(bias))
        gates.append(split(draft, y, [batch] * steps, 0))
    for place in reversed(range(steps)) if direction.backwards else range(steps):
        states = step([rows[place] for rows in gates], states)
        after_steps.append(states)
    return after_steps


def _gru(draft: Draft, node: Node, direction: _Direction) -> _Step:
    return (_gru_of_products if _resets_product(node) else _gru_of_states)(draft, direction)


def _gru_of_products(draft: Draft, direction: _Direction) -> _Step:
    """A GRU that resets the state's product, as PyTorch has it."""
    size, weights, inner = direction.inner.size, draft.constant(direction.of_state), draft.constant(direction.inner)
    bias = draft.constant(np.concatenate([np.zeros(2 * size, np.float32), direction.inner]))

    def step(gates_of_input: Sequence[str], states: tuple[str, ...]) -> tuple[str, ...]:
        update, reset, new = gates_of_input
        if states:
            *gates, product = split(draft, _product(draft, states[0], weights, bias), [size] * 3, 1)
            update, reset = _sums(draft, gates_of_input[:2], gates)
        else:
            product = inner
        new = draft.node("Add", [new, draft.node("Mul", [draft.node("Sigmoid", [reset]), product])])
        return _updated(draft, update, new, states)

    return step


def _gru_of_states(draft: Draft, direction: _Direction) -> _Step:
    """A GRU that resets the state, as originally published."""
    size = direction.inner.size
    gates, last = (draft.constant(part) for part in np.split(direction.of_state, [2 * size]))

    def step(gates_of_input: Sequence[str], states: tuple[str, ...]) -> tuple[str, ...]:
        update, reset, new = gates_of_input
        if states:
            products = split(draft, _product(draft, states[0], gates), [size] * 2, 1)
            update, reset = _sums(draft, gates_of_input[:2], products)
            left = draft.node("Mul", [draft.node("Sigmoid", [reset]), states[0]])
            new = _product(draft, left, last, new)
        return _updated(draft, update, new, states)

    return step


def _updated(draft: Draft, update: str, new: str, states: tuple[str, ...]) -> tuple[str]:
    """The state of a GRU, interpolated between the new and the previous one."""
    update, new = draft.node("Sigmoid", [update]), draft.node("Tanh", [new])
    if not states:
        return (draft.node("Sub", [new, draft.node("Mul", [update, new])]),)
    return (draft.node("Add", [new, draft.node("Mul", [update, draft.node("Sub", [states[0], new])])]),)


def _lstm(draft: Draft, node: Node, direction: _Direction) -> _Step:
    weights = draft.constant(direction.of_state)

    def step(gates_of_input: Sequence[str], states: tuple[str, ...]) -> tuple[str, ...]:
        gates: Sequence[str] = gates_of_input
        if states:
            products = split(draft, _product(draft, states[0], weights), [direction.inner.size] * 4, 1)
            gates = _sums(draft, gates_of_input, products)
        entered, left, forget = (draft.node("Sigmoid", [gate]) for gate in gates[:3])
        cell = draft.node("Mul", [entered, draft.node("Tanh", [gates[3]])])
        if states:
            cell = draft.node("Add", [cell, draft.node("Mul", [forget, states[1]])])
        return draft.node("Mul", [left, draft.node("Tanh", [cell])]), cell

    return step


def _rnn(draft: Draft, node: Node, direction: _Direction) -> _Step:
    weights = draft.constant(direction.of_state)

    def step(gates_of_input: Sequence[str], states: tuple[str, ...]) -> tuple[str, ...]:
        (gate,) = gates_of_input
        return (draft.node("Tanh", [_product(draft, states[0], weights, gate) if states else gate]),)

    return step


_STEPS: Mapping[str, Callable[[Draft, Node, _Direction], _Step]] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}


def _product(draft: Draft, x: str, weights: str, added: str = "") -> str:
    """Rows of ``x`` times the rows of ``weights``."""
    return draft.node("Gemm", [x, weights, added] if added else [x, weights], transB=1)


def _sums(draft: Draft, ones: Sequence[str], others: Sequence[str]) -> list[str]:
    return [draft.node("Add", pair) for pair in zip(ones, others, strict=True)]


def _joined(draft: Draft, rows: Sequence[str]) -> str:
    return draft.node("Concat", rows, axis=0) if len(rows) > 1 else rows[0]
