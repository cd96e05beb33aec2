"""Coverage of a model's branches: a check whose inputs never take a branch proves nothing about it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx

from collage_evo.errors import InputError
from collage_evo.graph.check.value_ranges import Values
from collage_evo.graph.convert.static import STANDARD, inferred
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import refill

TRIED = 16
"""Random inputs to try for a branch that no other input took. Chosen."""

Feeds = Mapping[str, Any]


def taking_each_branch(
    model: onnx.ModelProto, samples: Sequence[Feeds], threads: int, timeout_s: float | None = None
) -> tuple[list[Feeds], tuple[str, ...]]:
    """Random inputs that take branches which ``samples`` do not take, and the Ifs with a side that no input took.

    Ifs inside bodies count as part of the operator around them: their conditions cannot be observed from outside.

    Args:
        model: with its inputs' shapes fixed.
        samples: inputs on which the model runs anyway.
        threads: for each run.
        timeout_s: limit of one run in seconds.
    """
    ifs = [node for node in model.graph.node if node.op_type == "If" and node.domain in STANDARD]
    values = Values(model, inferred(model)) if ifs else None  # takes a while for a large model
    decided = [node for node in ifs if values is not None and not values.settled(node.input[0])]
    if not decided:
        return [], ()
    reference = Reference(_only(model, sorted({node.input[0] for node in decided})), threads, timeout_s=timeout_s)
    sides = {(node.name or node.output[0], node.input[0]): set[bool]() for node in decided}

    def new(feeds: Feeds) -> bool:
        conditions = reference.run_named(feeds)
        before = sum(map(len, sides.values()))
        for (_, condition), seen in sides.items():
            seen.add(bool(np.all(conditions[condition])))
        return sum(map(len, sides.values())) > before

    for feeds in samples:
        new(feeds)
    more: list[Feeds] = []
    for index in range(TRIED):
        if all(len(seen) == 2 for seen in sides.values()):
            break
        with contextlib.suppress(InputError):  # a branch may take no such sizes, an input be a sequence
            if new(feeds := random_inputs(model, seed=5000 + index)):
                more.append(feeds)
    return more, tuple(name for (name, _), seen in sides.items() if len(seen) < 2)


def _only(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """``model`` with the conditions ``names`` as its outputs."""
    copy = deepcopy(model)
    refill(
        copy.graph.output,
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None) for name in names],
    )
    return copy
