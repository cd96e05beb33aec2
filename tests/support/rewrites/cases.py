"""Random models by hypothesis for each rewrite of the catalogue.

Every model has a place where the rewrite applies, with shapes and attributes that vary, and operators around it.
"""

from __future__ import annotations

import onnx
from hypothesis import strategies as st

from collage_evo.graph.convert.read import build_graph
from collage_evo.rewrites.catalogue import rewrite_named
from collage_evo.testing.generated import Family, models
from tests.support.rewrites import convolutions, others

CASES: dict[str, Family] = {
    "convolved-rows": others.convolved_rows,
    "flat-convolutions": convolutions.flat_convolutions,
    "interleaved-parts": others.interleaved_parts,
    "joined-products": others.joined_products,
    "merged-groups": convolutions.merged_groups,
    "phase-convolutions": convolutions.phase_convolutions,
    "pixel-products": convolutions.pixel_products,
    "places-as-channels": convolutions.places_as_channels,
    "pooled-convolutions": convolutions.pooled_convolutions,
    "tabled-indices": others.tabled_indices,
    "turned-factors": others.turned_factors,
    "unrolled-steps": others.unrolled_steps,
}
"""Strategies by the name of the rewrite."""


def rewritable_models(rewrite: str) -> st.SearchStrategy[onnx.ModelProto]:
    """Models in which ``rewrite``, one of :data:`CASES`, applies."""
    return models(CASES[rewrite]).filter(lambda model: any(rewrite_named(rewrite).sites(build_graph(model))))
