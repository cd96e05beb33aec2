"""What repeats is written once, and unfolding gives back what there was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from collage_evo.report.blocks import MOST, Folded, drawn, folded, rows_of
from collage_evo.report.result import Operator, RegionResult


def unfolded(items: Sequence[str | Folded[str]]) -> list[str]:
    found: list[str] = []
    for item in items:
        found += unfolded(item.items) * item.times if isinstance(item, Folded) else [item]
    return found


@given(st.lists(st.sampled_from("abc"), max_size=40))
def test_nothing_is_lost(items: list[str]) -> None:
    assert unfolded(folded(items)) == items


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True), st.integers(2, 9))
def test_a_block_that_repeats_is_written_once(block: list[str], times: int) -> None:
    assert folded(block * times) == (Folded(tuple(block), times),)


def test_blocks_are_folded_inside_of_blocks() -> None:
    assert folded(["x", *"ababc" * 12, "y"]) == ("x", Folded((Folded(("a", "b"), 2), "c"), 12), "y")


def region(backend: str, kinds: Sequence[str], ms: float = 1.0) -> RegionResult:
    operators = tuple(Operator(kind, "float32") for kind in kinds)
    return RegionResult(backend, "default", tuple(kinds), ms, operators=operators)


def test_a_network_of_hundreds_of_operators_has_few_to_read() -> None:
    layer = ["MatMul", "Add", "Reshape", "Softmax", "MatMul", "Add", "Mul", "Mul", "Mul"]
    (row,) = rows_of([region("openvino", ["Gather", *layer * 60, "Gemm"])])
    (block,) = row.blocks
    assert block.operators == 542
    assert drawn(block.chips) < 12


def test_a_region_that_does_not_repeat_is_told_by_counts() -> None:
    kinds = [f"Kind{k * k % 251}" for k in range(4 * MOST)]
    (row,) = rows_of([region("openvino", kinds)])
    (block,) = row.blocks
    assert not block.chips
    assert sum(count for _, _, count in block.counts) == len(kinds)


def test_regions_that_repeat_are_one_row_and_each_has_its_share_of_the_time() -> None:
    pair = [region("openvino", ["Conv", "Relu"], 3.0), region("ncnn", ["Conv"], 1.0)]
    first = replace(region("openvino", ["Pad"], 4.0))
    rows = rows_of([first, *pair * 3])
    assert [(len(row.blocks), row.times, row.first) for row in rows] == [(1, 1, 0), (2, 3, 1)]
    assert rows[0].blocks[0].share == 0.25
