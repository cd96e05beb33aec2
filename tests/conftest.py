"""Backends that are registered for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage_evo.backends import registry


@pytest.fixture
def registry_alone() -> Iterator[None]:
    """What a test registers or installs, the next one does not find."""
    registry._installed.cache_clear()
    yield
    registry._registered.clear()
    registry.get_backend.cache_clear()
    registry._installed.cache_clear()
