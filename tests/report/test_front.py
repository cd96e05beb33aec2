"""Latency against error as a person sees it: a table that fits a terminal, and a picture that says what it shows."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collage_evo.accuracy.judge import Quality
from collage_evo.errors import InputError
from collage_evo.report.accuracy import describe_accuracy
from collage_evo.report.front import MOST, PHASES, front_rows, proved_front, rows_by_phase, shown
from collage_evo.report.html import write_picture
from collage_evo.report.pictures import NARROW, WIDE, curve_svg, front_svg
from collage_evo.report.result import FrontPoint
from collage_evo.report.terminal import front_table, print_result
from tests.report.helpers import ACCURACY, front_points, make_result, page_of
from tests.report.test_tables import fits, printed

ALONE = ("openvino alone, float32", "onnxruntime/nchw alone, float32")
OVER = "openvino/int8 alone, int8; exceeds the budget"


def test_the_table_fits_and_has_the_answer_and_each_backend_alone() -> None:
    text = printed(lambda console: console.print(front_table(make_result())))
    assert fits(text)
    flat = " ".join(text.split())
    for told in ("budget 0.01", "630 0.009 thoroughly the answer", *ALONE, OVER):
        assert told in flat


def test_what_keeps_the_budget_and_seems_faster_than_the_answer_says_why_it_is_not() -> None:
    (row,) = [row for row in front_rows(front_points()) if row[0] == "600"]
    assert row[3].endswith("one short measurement; others were likelier to be fast, and raced")


def test_of_a_long_front_both_ends_the_answer_and_the_fastest_within_the_budget_are_shown() -> None:
    points = front_points()
    found = shown(points)
    assert len(found) == MOST
    assert {points[0].key, "key9", "key10", "key20"} <= {point.key for point in found}
    assert [point.error for point in found] == sorted(point.error or 0.0 for point in found)


def test_the_page_s_table_has_every_point_under_the_phase_that_timed_it() -> None:
    phases = dict(rows_by_phase(front_points()))
    assert list(phases) == list(PHASES.values())
    assert sum(map(len, phases.values())) == len(front_points())
    thorough = phases[PHASES["thoroughly"]]
    assert [row[0] for row in thorough] == ["630", "1000", "1200"]
    assert [row[4] for row in thorough] == [True, False, False]


def test_of_a_backend_s_ways_to_compute_alike_the_fastest_is_shown() -> None:
    slower = replace(front_points()[-1], single="openvino/int8-all", how="openvino/int8-all alone", latency_ms=510.0)
    told = [row[3] for row in front_rows([*front_points(), slower])]
    assert [what for what in told if what.startswith("openvino/int8")] == [OVER]


def test_the_answer_s_error_is_told_with_the_samples_that_it_was_measured_on() -> None:
    assert describe_accuracy(ACCURACY) == (
        "Relative error of the answer, all samples together: 0.009 on 32 samples that the search saw, "
        "0.0092 (95 % interval 0.008 to 0.0099) on 100 held-out samples; budget 0.01."
    )
    same = replace(ACCURACY, unseen=False, samples={"search": 1, "held_out": 1}, interval=None)
    assert "0.009 on 1 sample that the search saw, 0.0092 on 1 sample, also seen;" in describe_accuracy(same)
    few = replace(ACCURACY, metric="m.py:f", budget="1%", error_held_out=None, random=True, notes=["Too few"])
    assert describe_accuracy(few) == (
        "Drop of m.py:f, all samples together: 0.009 on 32 samples that the search saw; budget 1%. "
        "The samples are random numbers. Too few."
    )


def test_the_worst_sample_and_other_metrics_are_told_where_they_are_known() -> None:
    found = (
        Quality("", 9.2e-3, 8e-3, 9.9e-3, worst=0.16),
        Quality("agreement", 0.01, score=0.99, reference=1.0),
        Quality("top1", 0.01, score=0.7, reference=0.71),
        Quality("psnr", 0.0),
    )
    told = describe_accuracy(replace(ACCURACY, held_out=found, over_budget=3, over="worst"))
    assert told.startswith("Relative error of the answer, of the worst sample: 0.009")
    assert "Single samples: worst sample 0.16, 3 of 100 exceed the budget." in told
    assert "labels changed: 1 of 100, top1 0.7 (the model itself 0.7100), psnr of identical outputs." in told


def test_where_everything_computes_in_float32_there_is_no_front_to_show(tmp_path: Path) -> None:
    result = replace(make_result(), front=[point for point in front_points() if point.exact])
    assert "latency against error" not in printed(lambda console: print_result(result, console))
    assert "Latency against error" not in page_of(result, tmp_path)


def test_the_page_holds_the_picture_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = page_of(make_result(), tmp_path)
    assert '<svg class="front"' in page
    assert "prefers-color-scheme: dark" in page
    assert all(link.startswith("#") for link in re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", page))
    assert not re.search(r"<(?:script|link|img|iframe)|@import|url\((?!#)", page)


def test_a_picture_is_a_file_of_its_own(tmp_path: Path) -> None:
    result = replace(make_result(), front=tuple(front_points()), accuracy=ACCURACY)
    write_picture(tmp_path / "front.svg", result)
    svg = ElementTree.parse(tmp_path / "front.svg").getroot()
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert ".answer { fill: #" in svg.findtext("{http://www.w3.org/2000/svg}style", "")
    assert "var(" not in (tmp_path / "front.svg").read_text()
    exact = [point for point in front_points() if point.exact]
    with pytest.raises(InputError, match="nothing ran in a lower precision"):
        write_picture(tmp_path / "none.svg", replace(result, front=tuple(exact)))


def drawing(points: list[FrontPoint] | None = None, largest: float | None = 0.01) -> ElementTree.Element:
    accuracy = replace(ACCURACY, largest=largest)
    return parsed(front_svg(points or front_points(), accuracy))


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def of_class(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if kind in element.get("class", "").split()]


def line_of(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """Corners of the only line of this class."""
    (line,) = of_class(svg, kind)
    numbers = [float(number) for number in re.findall(r"[\d.]+", line[0].get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_the_picture_marks_the_answer_the_budget_and_each_backend_alone() -> None:
    svg = drawing()
    (answer,) = of_class(svg, "answer")
    assert answer.findtext("title") == (
        "630 ms, error 0.009, timed thoroughly: the answer; found by crossover, float32 and int8"
    )
    budget = line_of(svg, "budget")[0][0]
    over = [point for point in of_class(svg, "single") if float(point.get("cx", "")) > budget]
    assert [point.findtext("title", "").partition(": ")[2] for point in over] == [OVER]
    words = [text.text for text in svg.iter("text")]
    assert {"the answer 630 ms", "openvino 1000 ms", "onnxruntime/nchw 1200 ms"} <= {*words}
    assert {"float32", "latency (ms)", "budget 0.01"} <= {*words}
    assert "error on samples of the search" in words
    assert len(of_class(svg, "pareto")) == sum(p.pareto and not p.single and not p.answer for p in front_points())
    assert not of_class(drawing(largest=None), "budget")


def test_the_picture_is_told_in_words() -> None:
    svg = drawing()
    assert svg.get("role") == "img"
    named = {element.get("id"): element.text or "" for element in svg.iter() if element.get("id")}
    title, told = (named[name] for name in svg.get("aria-labelledby", "").split())
    assert title == "Latency against error, budget 0.01"
    assert "The answer: 630 ms at 0.009" in told


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_all_lines_below_the_picture_are_inside_it(width: int) -> None:
    svg = parsed(front_svg(front_points(), ACCURACY, width))
    height = float(svg.get("viewBox", "").split()[-1])
    below = [float(text.get("y", 0)) for text in svg.iter("text") if "hint" in (text.get("class") or "")]
    assert len(below) > 2
    assert max(below) <= height - 4, "letters reach below their line"


def test_numbers_of_an_axis_over_many_decades_leave_room_for_each_other() -> None:
    wide = [replace(point, error=10.0**-k) for k, point in zip(range(1, 11), front_points()[2:], strict=False)]
    labels = re.findall(r">(1e-\d+|0\.\d+1)</", front_svg(wide, ACCURACY, NARROW))
    assert 2 <= len(set(labels)) <= 5


def test_pictures_have_the_colours_of_the_page_alone() -> None:
    curve = curve_svg([{"seconds": 1.0, "best_ms": 5.0}, {"seconds": 2.0, "best_ms": 4.0}])
    for svg in (front_svg(front_points(), ACCURACY), curve):
        assert "var(--ink)" in svg
        assert not re.search(r"#[0-9a-f]{3,6}\b|rgb|url\(", svg)
        assert all("fill" in text.get("style", "fill") for text in parsed(svg).iter("text"))


def test_the_front_is_a_line_that_only_goes_right_and_down() -> None:
    across, down = zip(*line_of(drawing(), "step"), strict=True)
    assert list(across) == sorted(across)
    assert list(down) == sorted(down)
    assert len(set(down)) == len(proved_front(front_points())) == 2


@pytest.mark.parametrize("moved", [0.01, 0.9, 1.0, 1.1, 100.0])
def test_the_line_never_passes_below_the_answer_however_fast_brief_times_and_what_was_not_proved_are(
    moved: float,
) -> None:
    points = [
        point if point.answer or point.single else replace(point, latency_ms=point.latency_ms * moved)
        for point in front_points()
    ]
    loser = replace(points[4], raced=True, latency_ms=620.0, remark="not faster for certain")
    svg = drawing([*points, loser])
    line, (answer,) = line_of(svg, "step"), of_class(svg, "answer")
    assert max(y for _, y in line) == pytest.approx(float(answer.get("cy", "")), abs=0.1)
    assert line[-1][0] == pytest.approx(line_of(svg, "budget")[0][0])


def test_where_the_answer_breaks_the_budget_what_is_more_exact_and_slower_is_still_on_the_line() -> None:
    points = [replace(point, feasible=False) for point in front_points()]
    assert [point.latency_ms for point in proved_front(points)] == [1000.0, 630.0]
    faster = replace(points[0], latency_ms=600.0)
    assert [point.latency_ms for point in proved_front([faster, *points[1:]])] == [1200.0, 630.0]


def test_only_marks_of_the_final_comparison_are_filled() -> None:
    svg, points = drawing(), front_points()
    brief = of_class(svg, "brief")
    assert len(brief) == sum(not point.raced for point in points)
    assert all("timed thoroughly" not in mark.findtext("title", "") for mark in brief)


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_names_cover_neither_each_other_nor_a_line(width: float) -> None:
    crowd = [FrontPoint(500.0 + 9 * k, 2e-2, "", "alone", (f"a{k}",), f"backend/variant-{k}") for k in range(12)]
    svg = parsed(front_svg([*front_points(), *crowd], ACCURACY, width))
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


def test_what_a_point_is_can_be_read_by_pointing_at_it_or_with_a_tap() -> None:
    points = of_class(drawing(), "point")
    assert len(points) == len(front_points())
    for point in points:
        told = " ".join(text.text or "" for text in point.iter("text"))
        assert " ms, error " in told
        assert told == point.findtext("circle[2]/title")


@pytest.mark.parametrize("error", [0.0, -0.01, None])
def test_a_metric_that_does_not_drop_is_drawn_too(error: float | None) -> None:
    points = [replace(front_points()[5], error=error, pareto=error is not None), *front_points()]
    assert len(of_class(drawing(points), "reach")) == len(points) - (error is None)
