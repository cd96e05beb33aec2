"""Plans of lanes: what is written is read, what contradicts itself is refused, lanes wait for what they need and no
more, and tensors share memory only where no order of parts needs both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.files import read_json
from collage_evo.graph.ir.graph import Tensor
from collage_evo_lanes.load import LINE, plan_inner
from collage_evo_lanes.plan import LanePlan, Part


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, "float32", shape)


def fork() -> LanePlan:
    """``x`` to ``a`` in lane 0, from this ``b`` in lane 0 and ``c`` in lane 1."""
    tensors = {name: tensor(name, 1, 2, 8) for name in ("x", "a", "b", "c")}
    parts = (Part(0, ("x",), ("a",)), Part(0, ("a",), ("b",)), Part(1, ("a",), ("c",)))
    return LanePlan(2, parts, tensors, ("x",), ("b", "c"))


def test_what_is_written_is_read() -> None:
    assert from_json(to_json(fork()), LanePlan) == fork()


def damaged() -> Iterator[tuple[str, dict[str, Any]]]:
    first, second, third = fork().parts
    tensors = fork().tensors
    yield "lanes", {"lanes": 0}
    yield "a part of lane 2", {"parts": (first, second, replace(third, lane=2))}
    yield "part 0 reads z", {"parts": (replace(first, inputs=("z",)), second, third)}
    yield "part 0 reads a, which nothing before it makes", {"parts": (second, first, third)}
    yield "nothing makes z", {"outputs": ("z",)}
    yield "nothing makes x", {"outputs": ("x",)}
    yield "b is made twice", {"parts": (first, second, second, third)}
    yield "x is made twice", {"parts": (first, second, third, Part(0, ("a",), ("x",)))}
    yield "there is no c", {"tensors": {name: tensors[name] for name in "xab"}}
    yield "named twice", {"outputs": ("b", "b", "c")}
    yield "empty, or of no known", {"tensors": {**tensors, "x": tensor("x", 1, -1, 8)}}
    yield "empty, or of no known", {"tensors": {**tensors, "x": tensor("x", 1, 0, 8)}}
    yield "empty, or of no known", {"tensors": {**tensors, "x": replace(tensors["x"], dtype="object")}}


def read(text: str, folder: Path) -> LanePlan:
    """As who loads a region reads its file."""
    path = folder / "plan.json"
    path.write_text(text)
    return read_json(path, LanePlan)


@pytest.mark.parametrize(("reason", "changed"), list(damaged()))
def test_a_plan_that_contradicts_itself_is_refused_with_one_line(
    reason: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(fork(), **changed)
    told = json.loads(to_json(fork()))
    for key, value in changed.items():
        told[key] = json.loads(json.dumps(value, default=vars))
    with pytest.raises(InputError, match=reason) as error:
        read(json.dumps(told), tmp_path)
    assert len(str(error.value).splitlines()) == 1


UNKNOWN_PART = json.dumps({**json.loads(to_json(fork())), "parts": [{"kind": "rm"}]})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lanes": 2}', "[" * 5000, UNKNOWN_PART])
def test_what_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        read(text, tmp_path)


@given(st.data())
def test_whatever_is_changed_in_a_plan_it_is_read_or_refused(data: Any) -> None:
    told = json.loads(to_json(fork()))
    place, junk = told, data.draw(st.sampled_from([None, -1, 10**9, "x", [], {}, ["x"], 1.5, True]))
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = junk
            break
        place = place[key]
    with contextlib.suppress(TypeError, ValueError):  # and nothing else is raised
        from_json(json.dumps(told), LanePlan).handoffs()


def test_a_lane_waits_once_for_what_other_lanes_made() -> None:
    """Of two steps of one lane it waits for the later one alone, and never again for what it knows to be done."""
    tensors = {name: tensor(name, 1) for name in "xabcdef"}
    parts = (
        Part(0, ("x",), ("a",)),
        Part(0, ("a",), ("b",)),
        Part(1, ("a", "b"), ("c",)),
        Part(1, ("a",), ("d",)),
        Part(2, ("a", "d"), ("e",)),
        Part(0, ("b", "e", "c"), ("f",)),
    )
    plan = LanePlan(3, parts, tensors, ("x",), ("f",))
    assert plan.handoffs() == ((), (), (1,), (), (3,), (4,))


@st.composite
def plans(draw: st.DrawFn) -> LanePlan:
    """Up to eight parts on up to three lanes, each of which makes one tensor or two from others."""
    lanes = draw(st.integers(1, 3))
    tensors, parts = {"x": tensor("x", 1, 4)}, []
    for index in range(draw(st.integers(1, 8))):
        read = draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=2, unique=True))
        made = [f"t{index}.{place}" for place in range(draw(st.integers(1, 2)))]
        tensors.update((name, tensor(name, 1, 4)) for name in made)
        parts.append(Part(draw(st.integers(0, lanes - 1)), tuple(read), tuple(made)))
    return LanePlan(lanes, tuple(parts), tensors, ("x",), ())


def states(plan: LanePlan) -> Iterator[tuple[set[int], set[int]]]:
    """Every state that parts which take any time can come to, lanes waiting as told: those begun, those ended."""
    waits = plan.handoffs()
    own = [[i for i, part in enumerate(plan.parts) if part.lane == lane] for lane in range(plan.lanes)]
    seen, todo = set(), [(0,) * len(own)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)  # by lane, twice the parts that ended, and one if another has begun
        begun = {i for lane, place in zip(own, at, strict=True) for i in lane[: (place + 1) // 2]}
        ended = {i for lane, place in zip(own, at, strict=True) for i in lane[: place // 2]}
        yield begun, ended
        for lane, place in enumerate(at):
            if place < 2 * len(own[lane]) and (place % 2 or set(waits[own[lane][place // 2]]) <= ended):
                todo.append((*at[:lane], place + 1, *at[lane + 1 :]))


@given(plans())
def test_in_every_order_that_handoffs_allow_what_is_read_is_there_and_not_written_over(plan: LanePlan) -> None:
    placed = plan_inner(plan).offsets
    touching = {n: {i for i, part in enumerate(plan.parts) if n in (*part.inputs, *part.outputs)} for n in placed}
    making = {n: {i for i, part in enumerate(plan.parts) if n in part.outputs} for n in placed}
    found = list(states(plan))
    assert {len(ended) for _, ended in found} >= {0, len(plan.parts)}
    for begun, ended in found:
        for index in begun:
            for name in plan.parts[index].inputs:
                assert name == "x" or making[name] <= ended
        alive = [n for n in placed if making[n] & begun and touching[n] - ended]
        for one, other in combinations(alive, 2):
            sizes = [plan.tensors[n].nbytes for n in (one, other)]
            assert placed[one] + sizes[0] <= placed[other] or placed[other] + sizes[1] <= placed[one]


def test_a_chain_in_one_lane_shares_memory_and_two_lanes_share_no_line() -> None:
    tensors = {"x": tensor("x", 10)} | {f"t{i}": tensor(f"t{i}", 10) for i in range(20)}
    chain = tuple(Part(0, (f"t{i - 1}" if i else "x",), (f"t{i}",)) for i in range(20))
    assert plan_inner(LanePlan(1, chain, tensors, ("x",), ())).size <= 2 * LINE
    apart = tuple(Part(i % 2, ("x",), (f"t{i}",)) for i in range(20))
    offsets = plan_inner(LanePlan(2, apart, tensors, ("x",), ())).offsets
    lines = [{offsets[f"t{i}"] // LINE for i in range(lane, 20, 2)} for lane in range(2)]
    assert not lines[0] & lines[1]
