"""The codec: records come back equal, and what is no such record is refused with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.codec import from_json, from_plain, to_json, to_plain
from collage_evo.graph.ir.graph import NodeSet


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Span(NamedTuple):
    low: float
    high: float = math.inf


@dataclass(frozen=True)
class Inner:
    nodes: NodeSet
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    sure: bool
    place: Path
    inner: Inner
    spans: tuple[Span, ...] = ()
    by_number: Mapping[int, Inner] = field(default_factory=dict)
    some: frozenset[str] = frozenset()
    sizes: list[int | str | None] = field(default_factory=list)
    pair: tuple[str, float] | None = None
    times: Sequence[float] = ()
    way: Literal["here", "there"] = "here"
    free: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Other:
    name: str


Either = Inner | Other
WHOLE = Outer(
    "a", 3, True, Path("b/c"), Inner(1 << 20000, Colour.BLUE), (Span(0.5), Span(-math.inf, 2.0)), {7: Inner(5)},
    frozenset({"x", "y"}), [1, "N", None], ("p", 1.0), (0.1, 1e-300), "there", {"k": [1, {"l": None}]},
)  # fmt: skip


def test_a_record_comes_back_as_it_was() -> None:
    assert from_json(to_json(WHOLE), Outer) == WHOLE
    assert from_json(to_json((WHOLE, WHOLE)), tuple[Outer, ...]) == (WHOLE, WHOLE)
    assert to_plain(Inner(255)) == {"nodes": "ff", "colour": "red"}


@given(st.floats(allow_nan=False), st.integers(min_value=0, max_value=2**70))
def test_every_number_comes_back_to_the_bit(number: float, nodes: int) -> None:
    value = (Span(number, number), Inner(nodes))
    assert from_json(to_json(value, tuple[Span, Inner]), tuple[Span, Inner]) == value


def test_one_of_several_records_says_which_it_is() -> None:
    for value in (Inner(3), Other("o")):
        assert from_json(to_json(value, Either), Either) == value
    with pytest.raises(ValueError, match="'Outer' is none of Inner, Other"):
        from_json('{"kind": "Outer"}', Either)


def test_what_is_missing_takes_its_default_and_what_is_unknown_is_passed_over() -> None:
    assert from_plain({"nodes": "1", "later": True}, Inner) == Inner(1)
    assert from_plain([1.0, 2.0, "later"], Span) == Span(1.0, 2.0)
    with pytest.raises(ValueError, match="'nodes' is missing"):
        from_plain({}, Inner)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("count", True, "count: 'True' is no int"),
        ("count", 1.0, "count: '1.0' is no int"),
        ("name", None, "name: 'None' is no str"),
        ("inner", {"nodes": "-1"}, "inner: nodes: '-1' is no set of nodes"),
        ("inner", {"nodes": 5}, "inner: nodes: '5' is no str"),
        ("inner", ["1"], "inner: .* is no dict"),
        ("spans", [{"low": 1}], "spans: .* is no list"),
        ("inner", {"nodes": "1", "colour": "green"}, "inner: colour: 'green'"),
        ("spans", [["a"]], "spans: low: 'a' is no number"),
        ("by_number", {"x": {"nodes": "1"}}, "by_number: "),
        ("sizes", [1.5], "sizes: '1.5' is no"),
        ("pair", ["p"], "pair: 1 values where 2 should be"),
        ("way", "nowhere", "way: 'nowhere' is none of here, there"),
        ("free", [], r"free: '\[\]' is no dict"),
    ],
)
def test_what_is_no_such_record_is_refused_with_its_place(place: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        from_plain({**json.loads(to_json(WHOLE)), place: value}, Outer)
