"""Plans of lanes: what is written is read, what contradicts itself is refused, lanes wait for what they need and no
more, and tensors share memory only where no order of steps needs both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.backends.lanes.memory import LINE, plan_inner
from collage_evo.backends.lanes.order import Order, order_of, use_of
from collage_evo.backends.lanes.plan import Copy, LanePlan, Part, View
from collage_evo.errors import InputError
from collage_evo.files import BUILD_ANEW, reading
from collage_evo.graph.ir import Tensor
from collage_evo.graph.read import build_graph
from tests.support.lanes import random_model, scattered


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, "float32", shape)


def fork() -> LanePlan:
    """``x`` to ``a`` in lane 0, from this ``b`` in lane 0 and ``c`` in lane 1, which lie in ``y``."""
    tensors = {name: tensor(name, 1, 2, 8) for name in ("x", "a", "b", "c")} | {"y": tensor("y", 1, 4, 8)}
    steps = (Part(0, ("x",), ("a",)), Part(0, ("a",), ("b",)), Part(1, ("a",), ("c",)))
    views = {"b": View("y", 1, 0, 2), "c": View("y", 1, 2, 4)}
    return LanePlan(2, steps, tensors, views, ("x",), ("y",))


def test_what_is_written_is_read() -> None:
    copies = (Copy(1, "b", "y", 1, 0, 2, True), Copy(1, "c", "y", 1, 2, 4, True))
    joined = replace(fork(), views={}, steps=(*fork().steps, *copies))
    for plan in (fork(), joined):
        assert LanePlan.loads(plan.dumps()) == plan


def damaged(plan: LanePlan) -> Iterator[tuple[str, LanePlan]]:
    first, second, third = plan.steps
    big = {**plan.tensors, "b": tensor("b", 1, 3, 8)}
    deep = {**plan.tensors, "y": tensor("y", 2, 4, 8)}
    yield "lanes", replace(plan, lanes=0)
    yield "a step of lane 2", replace(plan, steps=(first, second, replace(third, lane=2)))
    yield "there is no z", replace(plan, steps=(replace(first, inputs=("z",)), second, third))
    yield "there is no z", replace(plan, outputs=("z",))
    yield "b does not lie in y", replace(plan, tensors=big)
    yield "c does not lie in y", replace(plan, views={**plan.views, "c": View("y", 1, 3, 5)})
    yield "c has no such place in y", replace(plan, views={**plan.views, "c": View("y", 3, 2, 4)})
    yield "does not lie in", replace(plan, tensors=deep)
    yield "lies in itself", replace(plan, views={**plan.views, "a": View("a", 1, 0, 2)})
    yield "an input or output is named twice or lies", replace(plan, views={"x": View("y", 1, 0, 2)})
    yield "b does not lie in y", replace(plan, steps=(*plan.steps, Copy(0, "b", "y", 1, 3, 5, True)))
    yield "x is", replace(plan, tensors={**plan.tensors, "x": tensor("x", 1, -1, 8)})
    yield "no known type", replace(plan, tensors={**plan.tensors, "x": replace(tensor("x", 1, 2, 8), dtype="object")})


def read(text: str) -> LanePlan:
    """As who loads a region reads its file."""
    with reading(Path("plan.json"), BUILD_ANEW):
        return LanePlan.loads(text)


@pytest.mark.parametrize(("reason", "plan"), list(damaged(fork())))
def test_a_plan_that_contradicts_itself_is_refused_with_one_line(reason: str, plan: LanePlan) -> None:
    with pytest.raises(InputError, match=reason) as error:
        read(plan.dumps())
    assert len(str(error.value).splitlines()) == 1


UNKNOWN_STEP = json.dumps({**json.loads(fork().dumps()), "steps": [{"kind": "rm"}]})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lanes": 2}', "[" * 5000, UNKNOWN_STEP])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"plan\.json is damaged"):
        read(text)


@given(st.data())
def test_whatever_is_changed_in_a_plan_it_is_read_or_refused(data: Any) -> None:
    told = json.loads(fork().dumps())
    place, junk = told, data.draw(st.sampled_from([None, -1, 10**9, "x", [], {}, ["x"], 1.5, True]))
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = junk
            break
        place = place[key]
    with contextlib.suppress(InputError, ValueError):  # and nothing else is raised
        order_of(read(json.dumps(told)))


def wrong_steps() -> Iterator[tuple[str, LanePlan]]:
    plan = fork()
    first, second, third = plan.steps
    yield "step 0 reads what no step before it makes", replace(plan, steps=(second, first, third))
    yield "nothing makes y", replace(plan, steps=(first, second))
    yield "b is made twice", replace(plan, steps=(first, second, second, third))
    yield "parts of y are made twice", replace(plan, views={"b": View("y", 1, 0, 2), "c": View("y", 1, 1, 3)})
    yield "y is made, and parts of it again", replace(plan, steps=(*plan.steps, Part(0, ("x",), ("y",))))
    yield "a step makes the input x", replace(plan, steps=(*plan.steps, Part(0, ("a",), ("x",))))
    joins = (Copy(0, "a", "y", 1, 0, 2, True), Copy(1, "x", "y", 1, 1, 3, True))
    yield "parts of y are made twice", replace(plan, views={}, steps=(first, *joins))
    yield "parts of y are made twice", replace(plan, steps=(*plan.steps, joins[0]))
    yield "nothing makes y", replace(plan, views={}, steps=(first, joins[0]))


@pytest.mark.parametrize(("reason", "plan"), list(wrong_steps()))
def test_steps_that_cannot_be_run_are_refused(reason: str, plan: LanePlan) -> None:
    plan.check()
    with pytest.raises(ValueError, match=reason):
        order_of(plan)


def test_a_lane_waits_once_for_what_other_lanes_made() -> None:
    """Of two steps of one lane it waits for the later one alone, and never again for what it knows to be done."""
    tensors = {name: tensor(name, 1) for name in "xabcdef"}
    steps = (
        Part(0, ("x",), ("a",)),
        Part(0, ("a",), ("b",)),
        Part(1, ("a", "b"), ("c",)),
        Part(1, ("a",), ("d",)),
        Part(2, ("a", "d"), ("e",)),
        Part(0, ("b", "e", "c"), ("f",)),
    )
    plan = LanePlan(3, steps, tensors, {}, ("x",), ("f",))
    assert order_of(plan).handoffs() == ((), (), (1,), (), (3,), (4,))


def test_a_tensor_is_there_when_all_its_parts_are() -> None:
    plan = replace(fork(), steps=(*fork().steps, Part(1, ("y",), ("z",))), outputs=("z",))
    plan = replace(plan, tensors={**plan.tensors, "z": tensor("z", 1)})
    assert order_of(plan).handoffs() == ((), (), (0,), (1,))


def test_parts_may_be_joined_beside_others_that_are_made_in_their_place() -> None:
    plan = fork()
    first, second, _ = plan.steps
    steps = (first, second, Copy(1, "x", "y", 1, 2, 4, True), Part(0, ("y",), ("z",)))
    tensors = {**plan.tensors, "z": tensor("z", 1)}
    mixed = replace(plan, steps=steps, views={"b": plan.views["b"]}, tensors=tensors, outputs=("z",))
    assert order_of(mixed).handoffs() == ((), (), (), (2,))


@st.composite
def orders(draw: st.DrawFn) -> Order:
    """Up to eight steps on up to three lanes, each of which makes a tensor from others; some are made in parts."""
    lanes = draw(st.integers(1, 3))
    tensors, steps, views = {"x": tensor("x", 1, 4)}, [], {}
    for index in range(draw(st.integers(1, 8))):
        read = draw(st.lists(st.sampled_from(sorted(tensors)), min_size=1, max_size=2, unique=True))
        name, lane = f"t{index}", draw(st.integers(0, lanes - 1))
        tensors[name] = tensor(name, 1, 4)
        if draw(st.booleans()):
            steps.append(Part(lane, tuple(read), (name,)))
            continue
        for half in range(2):
            part = f"{name}.{half}"
            tensors[part], views[part] = tensor(part, 1, 2), View(name, 1, 2 * half, 2 * half + 2)
            steps.append(Part(draw(st.integers(0, lanes - 1)), tuple(read), (part,)))
    return order_of(LanePlan(lanes, tuple(steps), tensors, views, ("x",), ()))


def states(order: Order) -> Iterator[tuple[set[int], set[int]]]:
    """Every state that steps which take any time can come to, lanes waiting as told: those begun, those ended."""
    steps, waits = order.plan.steps, order.handoffs()
    own = [[i for i, step in enumerate(steps) if step.lane == lane] for lane in range(order.plan.lanes)]
    seen, todo = set(), [(0,) * len(own)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)  # by lane, twice the steps that ended, and one if another has begun
        begun = {i for lane, place in zip(own, at, strict=True) for i in lane[: (place + 1) // 2]}
        ended = {i for lane, place in zip(own, at, strict=True) for i in lane[: place // 2]}
        yield begun, ended
        for lane, place in enumerate(at):
            if place < 2 * len(own[lane]) and (place % 2 or set(waits[own[lane][place // 2]]) <= ended):
                todo.append((*at[:lane], place + 1, *at[lane + 1 :]))


@given(orders())
def test_in_every_order_that_handoffs_allow_what_is_read_is_there_and_not_written_over(order: Order) -> None:
    plan = order.plan
    placed = plan_inner(order).offsets
    uses = [use_of(step) for step in plan.steps]
    touching = {n: {i for i, u in enumerate(uses) if n in map(plan.root, (*u.reads, *u.makes))} for n in placed}
    making = {n: {i for i, u in enumerate(uses) if n in map(plan.root, u.makes)} for n in placed}
    found = list(states(order))
    assert {len(ended) for _, ended in found} >= {0, len(plan.steps)}
    for begun, ended in found:
        for index in begun:
            for name in uses[index].reads:
                inside = {name, *(part for part, view in plan.views.items() if view.parent == name)}
                assert {i for i, use in enumerate(uses) if inside & {*use.makes}} <= ended
        alive = [n for n in placed if making[n] & begun and touching[n] - ended]
        for one, other in combinations(alive, 2):
            sizes = [plan.tensors[n].nbytes for n in (one, other)]
            assert placed[one] + sizes[0] <= placed[other] or placed[other] + sizes[1] <= placed[one]


def test_a_chain_in_one_lane_shares_memory_and_two_lanes_share_no_line() -> None:
    tensors = {"x": tensor("x", 10)} | {f"t{i}": tensor(f"t{i}", 10) for i in range(20)}
    chain = tuple(Part(0, (f"t{i - 1}" if i else "x",), (f"t{i}",)) for i in range(20))
    assert plan_inner(order_of(LanePlan(1, chain, tensors, {}, ("x",), ()))).size <= 2 * LINE
    apart = tuple(Part(i % 2, ("x",), (f"t{i}",)) for i in range(20))
    offsets = plan_inner(order_of(LanePlan(2, apart, tensors, {}, ("x",), ()))).offsets
    lines = [{offsets[f"t{i}"] // LINE for i in range(lane, 20, 2)} for lane in range(2)]
    assert not lines[0] & lines[1]


@pytest.mark.parametrize(("seed", "lanes"), list(product(range(6), (1, 2, 3))))
def test_the_plans_of_the_other_tests_are_in_order(seed: int, lanes: int) -> None:
    plan, models = scattered(build_graph(random_model(seed)), lanes, seed)
    assert LanePlan.loads(plan.dumps()) == plan
    assert len(order_of(plan).needs) == len(plan.steps)
    assert len(models) == len(plan.parts)
