"""Random models by hypothesis for each rewrite of the catalogue.

Every model has a place where the rewrite applies, with shapes and attributes that vary, and operators around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st

from collage_evo.graph.convert.read import build_graph
from collage_evo.rewrites.catalogue import rewrite_named
from collage_evo.testing.generated import Draw, Family, models
from tests.support.rewrites import convolutions, others
from tests.support.rewrites.parts import weights


def _joined_convolutions(d: Draw) -> list[str]:
    """Two to four 1x1 convolutions of one tensor, with or without the same activation behind, and one of 3x3."""
    channels, stride, biased = d.between(1, 6), d.between(1, 2), d.yes()
    x = d.image(channels)
    x = d.b.op("Relu", x) if d.yes() else x
    attributes: dict[str, Any] = {"strides": [stride, stride]} if stride > 1 or d.yes() else {}
    if d.yes():
        attributes["kernel_shape"] = [1, 1]
    activation = d.among("", "Relu", "Sigmoid", "Clip")
    ends = []
    for _ in range(d.between(2, 4)):
        made = d.between(1, 7)
        inputs = [x, weights(d, made, channels, 1, 1), *([weights(d, made)] if biased else [])]
        end = d.b.op("Conv", *inputs, **attributes)
        if activation:
            bounds = [d.b.const(np.float32(bound)) for bound in (-0.5, 0.5)] if activation == "Clip" else []
            end = d.b.op(activation, end, *bounds)
        ends.append(end)
    if d.yes():
        ends.append(d.b.op("Conv", x, weights(d, 2, channels, 3, 3), pads=[1, 1, 1, 1], strides=[stride, stride]))
    if d.yes():
        return [d.b.op("Concat", *ends, axis=1)]
    return ends if d.yes() else [ends[0], d.b.op("Concat", *ends[1:], axis=1)]


CASES: dict[str, Family] = {
    "blended-pixels": others.blended_pixels,
    "convolved-rows": others.convolved_rows,
    "flat-convolutions": convolutions.flat_convolutions,
    "interleaved-parts": others.interleaved_parts,
    "joined-convolutions": _joined_convolutions,
    "joined-products": others.joined_products,
    "merged-groups": convolutions.merged_groups,
    "normalised-rows": others.normalised_rows,
    "partial-convolutions": convolutions.partial_convolutions,
    "phase-convolutions": convolutions.phase_convolutions,
    "pixel-products": convolutions.pixel_products,
    "places-as-channels": convolutions.places_as_channels,
    "pooled-convolutions": convolutions.pooled_convolutions,
    "repeated-pixels": others.repeated_pixels,
    "resized-convolutions": convolutions.resized_convolutions,
    "separated-pools": others.separated_pools,
    "tabled-indices": others.tabled_indices,
    "turned-factors": others.turned_factors,
    "unrolled-steps": others.unrolled_steps,
}
"""Strategies by the name of the rewrite."""


def rewritable_models(rewrite: str) -> st.SearchStrategy[onnx.ModelProto]:
    """Models in which ``rewrite``, one of :data:`CASES`, applies."""
    return models(CASES[rewrite]).filter(lambda model: any(rewrite_named(rewrite).sites(build_graph(model))))
