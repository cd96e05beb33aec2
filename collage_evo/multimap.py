"""Several values for each key: all of them, or the first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def multimap(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key in ``pairs`` of key and value, both in the order of their first appearance."""
    values_of: dict[K, list[V]] = {}
    for key, value in pairs:
        values_of.setdefault(key, []).append(value)
    return values_of


def firsts(pairs: Iterable[tuple[K, V]]) -> dict[K, V]:
    """The first value of each key in ``pairs`` of key and value, in the order of their first appearance."""
    return {key: values[0] for key, values in multimap(pairs).items()}
