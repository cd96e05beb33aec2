"""Where the time goes: parts of a network by names of operators, and sums that lose nothing."""

from __future__ import annotations

import pytest

from collage_evo.report.operators import STRETCHES, parts_of, time_spent
from collage_evo.report.result import Operator, RegionResult

LAYER = ("attention/query/MatMul", "attention/key/MatMul", "output/dense/MatMul")


def region(times_ms: dict[str, float | None], ms: float, backend: str = "openvino") -> RegionResult:
    """A region of operators by name, whose kind is the end of it."""
    operators = tuple(Operator(name.split("/")[-1], "int8", name, spent) for name, spent in times_ms.items())
    return RegionResult(backend, "default", tuple(times_ms), ms, operators=operators)


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["/stem/Conv", "/layer1/0/Conv", "/layer1/1/Conv", "/layer2/0/Conv", "/fc/Gemm"],
         ["stem", "layer1/0", "layer1/1", "layer2/0", "fc"]),
        ([f"/enc/layer.{k}/{name}" for k in range(24) for name in LAYER],
         24 * ["enc/layer.*/attention/query", "enc/layer.*/attention/key", "enc/layer.*/output/dense"]),
        ([f"/layer{k}/{j}/Conv" for k in range(5) for j in range(9)],
         [f"layer{k}" for k in range(5) for _ in range(9)]),
        (["/a/Conv", "Cast_7", "/b/Conv"], ["a", "no part", "b"]),
        ([f"Conv.{k}" for k in range(9)],
         [f"operators {k - k % 2 + 1} to {min(k - k % 2 + 2, 9)}" for k in range(9)]),
        ([], []),
    ],
    ids=["deepest", "many layers", "stages", "without a path", "no paths", "none"],
)  # fmt: skip
def test_parts_are_as_deep_in_the_names_as_a_table_has_rows(names: list[str], parts: list[str]) -> None:
    assert parts_of(names) == parts
    assert len(parts_of([f"Conv.{k}" for k in range(100)])) == 100
    assert len({*parts_of([f"Conv.{k}" for k in range(100)])}) == STRETCHES


def test_times_add_up_to_the_answer_and_what_no_operator_takes_has_a_row() -> None:
    regions = [region({"/a/Conv": 4.0, "/a/Relu": 0.0, "/b/Conv": 2.0}, 8.0), region({"/b/Gemm": None}, 2.0, "ncnn")]
    by_part, by_kind = time_spent(regions, by_part=True), time_spent(regions, by_part=False)
    conv = "Conv in int8 100 %"
    rest = [("conversions between operators", 0, 2.0, 0.2, ""), ("ncnn, which tells no operators", 0, 2.0, 0.2, "")]
    assert by_part == [("a", 2, 4.0, 0.4, conv), ("b", 1, 2.0, 0.2, conv), *rest]
    assert by_kind == [("Conv in int8", 2, 6.0, pytest.approx(0.6), conv), *rest], "what takes no time has no row"
    several = [region({"/a/Conv": 1.0, "/a/Gemm": 6.0, "/a/Relu": 3.0, "/b/Gemm": 0.0}, 10.0)]
    assert time_spent(several, by_part=True)[0][-1] == "Gemm in int8 60 %, Relu in int8 30 %"
    assert [row[0] for row in time_spent(several, by_part=False)] == ["Gemm in int8", "Relu in int8", "Conv in int8"]


def test_a_result_without_profiles_has_no_table() -> None:
    untold = region({"/a/Conv": None}, 8.0)
    for by_part in (True, False):
        assert time_spent([untold], by_part) == time_spent([], by_part) == []
