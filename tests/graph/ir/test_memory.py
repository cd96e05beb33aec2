"""Arenas: what is needed together lies apart, what is not shares memory, and arrays lie where they are said to."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collage_evo.graph.ir.graph import Tensor
from collage_evo.graph.ir.memory import ALIGNMENT, Lifetime, allocate, place, plan_memory

SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 300), min_size=1)


@given(SIZES, st.sets(st.frozensets(st.sampled_from("abcdefgh"), min_size=2, max_size=2)), st.sampled_from((64, 128)))
def test_what_is_needed_together_lies_apart(
    sizes: dict[str, int], pairs: set[frozenset[str]], alignment: int
) -> None:
    plan = place(sizes, lambda one, other: frozenset((one, other)) in pairs, alignment)
    for one, other in combinations(sizes, 2):
        if frozenset((one, other)) in pairs:
            start, end = plan.offsets[one], plan.offsets[one] + sizes[one]
            assert end <= plan.offsets[other] or plan.offsets[other] + sizes[other] <= start
    assert all(offset % alignment == 0 for offset in plan.offsets.values())
    assert all(plan.offsets[name] + size <= plan.size for name, size in sizes.items())


def test_what_is_never_needed_together_shares_memory() -> None:
    assert place(dict.fromkeys("abc", 1000), lambda one, other: False).size == 1024


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found = []
    for index in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 10))
        size = draw(st.integers(0, 300))
        found.append(Lifetime(f"t{index}", size, first, first + draw(st.integers(0, 5))))
    return found


@given(lifetimes())
def test_tensors_alive_together_never_overlap(lives: list[Lifetime]) -> None:
    plan = plan_memory(lives)
    for a in lives:
        for b in lives:
            if a is not b and a.first <= b.last and b.first <= a.last:
                start, other = plan.offsets[a.name], plan.offsets[b.name]
                apart = start + a.nbytes <= other or other + b.nbytes <= start
                assert apart or not a.nbytes or not b.nbytes


def test_memory_is_used_again_once_a_tensor_is_dead() -> None:
    assert plan_memory([Lifetime(f"t{i}", 4000, i, i + 1) for i in range(50)]).size <= 2 * 4096


def test_arrays_are_aligned_typed_and_separate() -> None:
    tensors = {"a": Tensor("a", "float32", (3, 5)), "b": Tensor("b", "int64", (7,))}
    plan = place({name: tensor.nbytes for name, tensor in tensors.items()}, lambda one, other: True)
    views = allocate(plan, tensors)
    views["a"][:] = 1.5
    views["b"][:] = 7
    assert views["a"].dtype == np.float32
    assert views["a"].shape == (3, 5)
    assert (views["a"] == 1.5).all()
    assert all(view.ctypes.data % ALIGNMENT == 0 for view in views.values())
    wide = allocate(place({"b": 56}, lambda one, other: True, 4096), tensors, alignment=4096)
    assert wide["b"].ctypes.data % 4096 == 0
