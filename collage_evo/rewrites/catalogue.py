"""Catalogue of the rewrites that searches try, by name."""

from __future__ import annotations

from collage_evo.errors import InputError
from collage_evo.rewrites.convolved_rows import ConvolvedRows
from collage_evo.rewrites.flat_convolutions import FlatConvolutions
from collage_evo.rewrites.groups import MergedGroups
from collage_evo.rewrites.joined_products import JoinedProducts
from collage_evo.rewrites.phase_convolutions import PhaseConvolutions
from collage_evo.rewrites.pixel_products import PixelProducts
from collage_evo.rewrites.places_as_channels import PlacesAsChannels
from collage_evo.rewrites.pooled_convolutions import PooledConvolutions
from collage_evo.rewrites.recurrences import UnrolledSteps
from collage_evo.rewrites.rewrite import Rewrite
from collage_evo.rewrites.stacks import InterleavedParts
from collage_evo.rewrites.tables import TabledIndices
from collage_evo.rewrites.turned_factors import TurnedFactors

REWRITES: tuple[Rewrite, ...] = (
    ConvolvedRows(),
    FlatConvolutions(),
    InterleavedParts(),
    JoinedProducts(),
    MergedGroups(),
    PhaseConvolutions(),
    PixelProducts(),
    PlacesAsChannels(),
    PooledConvolutions(),
    TabledIndices(),
    TurnedFactors(),
    UnrolledSteps(),
)
"""All rewrites that take part, each once."""


def rewrite_named(name: str) -> Rewrite:
    """The rewrite of that name.

    Raises:
        InputError: there is none.
    """
    if (found := {rewrite.name: rewrite for rewrite in REWRITES}.get(name)) is None:
        names = ", ".join(rewrite.name for rewrite in REWRITES)
        raise InputError(f"there is no rewrite {name!r}: it is of another version; there are {names}")
    return found
