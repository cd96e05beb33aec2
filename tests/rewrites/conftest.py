"""A catalogue of a test's own rewrites."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collage_evo.rewrites import catalogue
from collage_evo.rewrites.rewrite import Rewrite

Offer = Callable[[Rewrite], None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Makes a rewrite the only one of the catalogue."""
    return lambda rewrite: monkeypatch.setattr(catalogue, "REWRITES", (rewrite,))
