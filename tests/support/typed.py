"""What a test knows of a value better than its annotation tells."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def not_none(value: Value | None) -> Value:
    """``value``, which has to be there."""
    assert value is not None
    return value
