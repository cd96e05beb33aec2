"""Picture of latency against error: marks, names, lines, and the same in words."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collage_evo.errors import InputError
from collage_evo.report.front import proved_front
from collage_evo.report.html import write_picture
from collage_evo.report.pictures import NARROW, WIDE, curve_svg, front_svg
from collage_evo.report.result import FrontPoint
from tests.support.results import result

WON = result()
POINTS, ACCURACY = list(WON.front), WON.accuracy


def drawing(
    points: list[FrontPoint] = POINTS, largest: float | None = 0.01, width: float = WIDE
) -> ElementTree.Element:
    return ElementTree.fromstring(front_svg(points, replace(ACCURACY, largest=largest), width))


def of_class(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if kind in element.get("class", "").split()]


def line_of(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """Corners of the only line of this class."""
    (line,) = of_class(svg, kind)
    numbers = [float(number) for number in re.findall(r"[\d.]+", line[0].get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_a_picture_is_a_file_of_its_own(tmp_path: Path) -> None:
    write_picture(tmp_path / "front.svg", WON)
    svg = ElementTree.parse(tmp_path / "front.svg").getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert ".answer { fill: #" in svg.findtext("{http://www.w3.org/2000/svg}style", "")
    assert "var(" not in (tmp_path / "front.svg").read_text()
    exact = replace(WON, front=[point for point in POINTS if point.exact])
    with pytest.raises(InputError, match="nothing ran in a lower precision"):
        write_picture(tmp_path / "none.svg", exact)


def test_marks_are_the_answer_the_budget_and_each_backend() -> None:
    svg = drawing()
    (answer,) = of_class(svg, "answer")
    what = "630 (625 to 640) ms, error 0.009, timed thoroughly: the answer; "
    what += "OpenVINO in bfloat16 with 2 of 4 operators in int8"
    assert answer.findtext("title") == what
    budget = line_of(svg, "budget")[0][0]
    over = [point for point in of_class(svg, "single") if float(point.get("cx", "")) > budget]
    titles = [point.findtext("title", "").partition(": ")[2] for point in over]
    assert titles == ["OpenVINO in int8; exceeds the budget"]
    words = {text.text for text in svg.iter("text")}
    assert {"the answer 630 ms", "OpenVINO in float32 1000 ms", "ONNX Runtime in float32 (nchw) 1200 ms"} <= words
    assert {"float32", "latency (ms)", "budget 0.01", "error on samples of the search"} <= words
    assert len(of_class(svg, "pareto")) == sum(p.pareto and not p.single and not p.answer for p in POINTS)
    brief = of_class(svg, "brief")
    assert len(brief) == sum(not point.raced for point in POINTS)
    assert all("timed thoroughly" not in mark.findtext("title", "") for mark in brief)
    assert not of_class(drawing(largest=None), "budget")


def test_the_picture_is_also_in_words_and_each_mark_on_a_pointer() -> None:
    svg = drawing()
    assert svg.get("role") == "img"
    named = {element.get("id"): element.text or "" for element in svg.iter() if element.get("id")}
    title, described = (named[name] for name in svg.get("aria-labelledby", "").split())
    assert title == "Latency against error, budget 0.01"
    assert "The answer: 630 ms at 0.009" in described
    marks = of_class(svg, "point")
    assert len(marks) == len(POINTS)
    for mark in marks:
        tip = " ".join(text.text or "" for text in mark.iter("text"))
        assert " ms, error " in tip
        assert tip == mark.findtext("circle[2]/title")


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("legend", [False, True])
def test_lines_below_the_picture_are_inside_it_and_whole(width: float, legend: bool) -> None:
    long = replace(POINTS[-1], remark="it was timed only briefly; others promised more and were compared thoroughly")
    svg = ElementTree.fromstring(front_svg([*POINTS, long], ACCURACY, width, legend))
    height = float(svg.get("viewBox", "").split()[-1])
    hints = [text for text in svg.iter("text") if "hint" in (text.get("class") or "")]
    tips = [[*mark.iter("text")] for mark in of_class(svg, "tip")]
    below = [float(text.get("y", 0)) for texts in (hints, *tips) for text in texts]
    assert max(below) <= height - 4, "letters reach below their line"
    assert (len(hints) > 1) is legend
    assert any(" ".join(text.text or "" for text in tip).endswith(long.remark) for tip in tips)


def test_numbers_of_an_axis_over_many_decades_leave_room_for_each_other() -> None:
    wide = [replace(point, error=10.0**-k) for k, point in zip(range(1, 11), POINTS[2:], strict=False)]
    labels = re.findall(r">(1e-\d+|0\.\d+1)</", front_svg(wide, ACCURACY, NARROW))
    assert 2 <= len(set(labels)) <= 5


def test_pictures_have_only_colours_of_the_page_and_the_curve_only_times_of_the_search() -> None:
    curve = curve_svg([{"seconds": 1.0, "best_ms": 5.0}, {"seconds": 2.0, "best_ms": 4.0}])
    for svg in (front_svg(POINTS, ACCURACY), curve):
        assert "var(--ink)" in svg
        assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|url\(", svg)
        assert all("fill" in text.get("style", "fill") for text in ElementTree.fromstring(svg).iter("text"))
    assert 4.0 <= max(float(label) for label in re.findall(r"anchor: end[^>]*>([\d.]+)</text>", curve)) < 6.0
    assert 'class="budget"' not in curve


@pytest.mark.parametrize("moved", [0.01, 0.9, 1.0, 1.1, 100.0])
def test_the_line_only_falls_and_never_passes_below_the_answer(moved: float) -> None:
    points = [
        point if point.answer or point.single else replace(point, latency_ms=point.latency_ms * moved)
        for point in POINTS
    ]
    loser = replace(points[4], raced=True, latency_ms=620.0, remark="not faster for certain")
    svg = drawing([*points, loser])
    line, (answer,) = line_of(svg, "step"), of_class(svg, "answer")
    across, down = zip(*line, strict=True)
    assert (list(across), list(down)) == (sorted(across), sorted(down))
    assert max(down) == pytest.approx(float(answer.get("cy", "")), abs=0.1)
    assert line[-1][0] == pytest.approx(line_of(svg, "budget")[0][0])


def test_if_the_answer_breaks_the_budget_more_exact_and_slower_points_are_still_on_the_line() -> None:
    points = [replace(point, feasible=False) for point in POINTS]
    assert [point.latency_ms for point in proved_front(points)] == [1000.0, 630.0]
    faster = replace(points[0], latency_ms=600.0)
    assert [point.latency_ms for point in proved_front([faster, *points[1:]])] == [1200.0, 630.0]


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_names_cover_neither_each_other_nor_a_line(width: float) -> None:
    crowd = [FrontPoint(500.0 + 9 * k, 2e-2, "", "alone", (f"a{k}",), f"backend/variant-{k}") for k in range(12)]
    svg = drawing([*POINTS, *crowd], width=width)
    boxes = [box_of(group[0]) for group in of_class(svg, "name")]
    assert len(boxes) > (3 if width == WIDE else 0)
    lines = [
        (min(x, right) - 1, min(y, down) - 1, max(x, right) + 1, max(y, down) + 1)
        for kind in ("step", "budget")
        for (x, y), (right, down) in itertools.pairwise(line_of(svg, kind))
    ]
    for (left, top, right, bottom), other in itertools.product(boxes, [*boxes, *lines]):
        if other != (left, top, right, bottom):
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


def box_of(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Where a line of text is, about."""
    x, y, wide = float(text.get("x", "")), float(text.get("y", "")), 6.0 * len(text.text or "")
    (anchor,) = re.findall(r"text-anchor: (\w+)", text.get("style", ""))
    left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
    return left, y - 9, left + wide, y + 2


@pytest.mark.parametrize("error", [0.0, -0.01, None])
def test_a_metric_that_does_not_drop_is_drawn_too(error: float | None) -> None:
    points = [replace(POINTS[5], error=error, pareto=error is not None), *POINTS]
    assert len(of_class(drawing(points), "reach")) == len(points) - (error is None)
