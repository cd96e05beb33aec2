"""Bounded fields of frozen records that a user may set: each has a default, a range, and a description."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any

from collage_evo.errors import ConfigError


def bounded(default: float, low: float, high: float, description: str) -> Any:
    """A field that may be from ``low`` to ``high``; the configuration's schema shows all of it."""
    return field(default=default, metadata={"ge": low, "le": high, "description": description})


def check_bounds(record: Any, section: str) -> None:
    """
    Raises:
        ConfigError: a field of ``record``, the ``section`` of a configuration, is not in its range.
    """
    for setting in fields(record):
        low, high = (setting.metadata.get(bound) for bound in ("ge", "le"))
        value = getattr(record, setting.name)
        if low is not None and high is not None and not low <= value <= high:
            raise ConfigError(f"{section}.{setting.name} is {value}; it must be from {low:g} to {high:g}")
