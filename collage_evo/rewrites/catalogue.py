"""The rewrites that searches try: takes a name, gives the rewrite."""

from __future__ import annotations

from collage_evo.errors import InputError
from collage_evo.rewrites.joined_convolutions import JoinedConvolutions
from collage_evo.rewrites.rewrite import Rewrite

REWRITES: tuple[Rewrite, ...] = (JoinedConvolutions(),)
"""All that take part, each once."""


def rewrite_named(name: str) -> Rewrite:
    """The rewrite of that name.

    Raises:
        InputError: there is none.
    """
    for rewrite in REWRITES:
        if rewrite.name == name:
            return rewrite
    known = ", ".join(rewrite.name for rewrite in REWRITES)
    raise InputError(f"there is no rewrite {name!r}: it is of another version; there are {known}")
