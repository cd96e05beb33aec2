"""Runs of a model on shapes that nothing is known about, and the sizes up to which it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from collage_evo.errors import InputError
from collage_evo.graph.load.distribution import elements
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.open_shapes import OpenShapes
from collage_evo.graph.load.ranges import shapes_of_samples
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.memory import PeakMemory

TRIED_S = 3.0
"""Time for running samples, seconds: the smallest and the largest are run first, and where these run nearly always
all do."""
LITTLE = 2**26
"""Bytes of memory below which growth from run to run says nothing. Chosen."""


class Trial:
    """Runs a model on random inputs of some shapes, each once.

    Args:
        model: may leave sizes open.
        reference: has loaded ``model``.
        known: shapes of inputs in all runs.
    """

    def __init__(
        self, model: onnx.ModelProto, reference: Reference, known: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        self._model, self._reference, self._known = model, reference, known or {}
        self._refusals: dict[str, str] = {}

    def refusal(self, shapes: Mapping[str, Sequence[int]]) -> str:
        """Why ONNX Runtime does not run the model on inputs of ``shapes``; empty if it does."""
        key = listed(shapes)
        if key not in self._refusals:
            feeds, self._refusals[key] = random_inputs(self._model, 0, {**self._known, **shapes}), ""
            try:
                self._reference.run(feeds)
            except InputError as error:
                self._refusals[key] = str(error)
        return self._refusals[key]

    def limit(self, shapes: OpenShapes, ran: Mapping[str, int], refused: Mapping[str, int]) -> str:
        """The last shapes that run on the way from sizes that ``ran`` to others that were ``refused``, one dimension
        by itself, in words; empty if each runs by itself."""
        for name in refused:
            dimension = shapes.varying[name]
            good, bad = ran.get(name, dimension.low), refused[name]
            if not self.refusal(shapes.shapes({**ran, name: bad})):
                continue
            while bad - good > dimension.step:
                middle = dimension.at((good + bad) // 2)
                runs = not self.refusal(shapes.shapes({**ran, name: middle}))
                good, bad = (middle, bad) if runs else (good, middle)
            return f"the model runs up to {name} {good}, as {listed(shapes.shapes({**ran, name: good}))}"
        return ""


def require_range(trial: Trial, shapes: OpenShapes, memory_bytes: float) -> None:
    """Require that the model runs on both ends of the ranges and between.

    Sizes double from run to run up to the upper end, so that one which needs more than ``memory_bytes`` is foreseen
    by the growth: it would end the process.

    Raises:
        InputError: it does not; the message has the limit, or the size that does not run, and ONNX Runtime's reason.
    """
    peak, before, ran, varying = PeakMemory(), 0, dict[str, int](), shapes.varying
    doublings = max(
        (((dimension.high - 1) // dimension.low).bit_length() for dimension in varying.values()), default=0
    )
    for k in range(doublings + 1):
        sizes = {name: dimension.at(dimension.low << k) for name, dimension in varying.items()}
        now = max(peak.bytes, LITTLE)
        if before and now * now / before > memory_bytes:
            ends = f"larger inputs than {listed(shapes.shapes(ran))} do not fit into memory"
            raise InputError(f"model.shapes: {ends}: give a range that ends there")
        before = now
        if reason := trial.refusal(shapes.shapes(sizes)):
            limit = trial.limit(shapes, ran, sizes) if k else ""
            words = limit or f"the model does not run on {listed(shapes.shapes(sizes))}"
            raise InputError(f"model.shapes: {words}: give a range that it takes ({reason})")
        ran = sizes
    between = shapes.shapes(
        {name: dimension.at(math.isqrt(dimension.low * dimension.high)) for name, dimension in varying.items()}
    )
    if reason := trial.refusal(between):
        raise InputError(
            f"model.shapes: the model runs at both ends of the range, but not on {listed(between)}: if it takes "
            f"multiples only, write them as 32..640/32 ({reason})"
        )


def require_samples(
    model: onnx.ModelProto, reference: Reference, samples: Sequence[Mapping[str, Any]], where: str
) -> None:
    """Require that the model runs on inputs of ``samples``: one of each shape, the smallest and the largest first, as
    many as run in ``TRIED_S``.

    Raises:
        InputError: it does not; the message names the sample of ``where``, its shape and the limit.
    """
    shapes = [{name: list(array.shape) for name, array in sample.items()} for sample in samples]
    first = {listed(shapes[number]): number for number in reversed(range(len(shapes)))}
    order = sorted(first.values(), key=lambda number: elements(shapes[number]))
    until = time.monotonic() + TRIED_S
    for number in dict.fromkeys((order[0], order[-1], *order)):
        if time.monotonic() > until:
            return
        try:
            reference.run(samples[number])
        except InputError as error:
            trial, limit = Trial(model, reference), ""
            between = shapes_of_samples(model, [shapes[order[0]], shapes[number]])
            if trial.refusal(shapes[number]) and not trial.refusal(between.smallest):
                limit = trial.limit(
                    between, {}, {name: dimension.high for name, dimension in between.varying.items()}
                )
            words = f"{listed(shapes[number])}: {limit or 'the model does not run on it'}"
            raise InputError(f"sample {number} of {where} has {words}: leave it out of the data ({error})") from error


def listed(shapes: Mapping[str, Sequence[int]]) -> str:
    """``shapes`` as ``--shapes`` takes them."""
    return ", ".join(f"{name}: {list(shape)}" for name, shape in shapes.items())
