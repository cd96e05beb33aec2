"""One waiting policy for all thread pools: takes backends, sets what their libraries read when they are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable

from collage_evo.backends.base import Target
from collage_evo.backends.registry import get_backend


def settle_pools(backends: Iterable[str], target: Target) -> None:
    """Set the environment of ``backends`` for ``target``; what the person has set already stays.

    A library reads its settings when it is first loaded: one that the program loaded before keeps its own.
    """
    for name in sorted(set(backends)):
        for variable, value in get_backend(name).environment(target).items():
            os.environ.setdefault(variable, value)
