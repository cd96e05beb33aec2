"""Latency against error as a person sees it: a table that fits a terminal, and a picture that says what it shows."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collage_evo.accuracy.judge import Quality
from collage_evo.report.front import MOST, front_rows, front_table, shown, told_accuracy
from collage_evo.report.html import write_html
from collage_evo.report.picture import LETTER, front_svg
from collage_evo.report.result import FrontPoint, Result
from collage_evo.report.terminal import print_result
from tests.report.helpers import ACCURACY, front_points, make_result
from tests.report.test_tables import fits, printed

ALONE = ("openvino alone, float32", "onnxruntime/nchw alone, float32")
OVER = "openvino/int8 alone, int8; over the budget"


def float32_only() -> Result:
    return replace(make_result(), front=[point for point in front_points() if point.exact])


def test_the_table_fits_and_has_the_answer_and_each_backend_alone() -> None:
    text = printed(lambda console: console.print(front_table(make_result())))
    assert fits(text)
    flat = " ".join(text.split())
    for told in ("budget 0.01", "630.00 9.0e-03 final the answer", *ALONE, OVER):
        assert told in flat


def test_what_keeps_the_budget_and_seems_faster_than_the_answer_says_why_it_is_not() -> None:
    (row,) = [row for row in front_rows(front_points()) if row[0] == "600.00"]
    assert row[3].endswith("one short measurement; others were likelier to be fast, and raced")


def test_of_a_long_front_both_ends_the_answer_and_the_fastest_within_the_budget_are_shown() -> None:
    points = front_points()
    found = shown(points)
    assert len(found) == MOST
    assert {points[0].key, "key9", "key10", "key20"} <= {point.key for point in found}
    assert [point.error for point in found] == sorted(point.error or 0.0 for point in found)


def test_of_a_backend_s_ways_to_compute_alike_the_fastest_is_shown() -> None:
    slower = replace(front_points()[-1], single="openvino/int8-all", how="openvino/int8-all alone", latency_ms=510.0)
    told = [row[3] for row in front_rows([*front_points(), slower])]
    assert [what for what in told if what.startswith("openvino/int8")] == [OVER]


def test_the_answer_s_error_is_told_with_the_samples_that_it_was_measured_on() -> None:
    assert told_accuracy(ACCURACY) == (
        "Relative error of the answer, all samples together: 9.0e-03 on 32 samples of the search, "
        "9.2e-03 [8.0e-03, 9.9e-03] on 100 samples held out; budget 0.01."
    )
    few = replace(ACCURACY, metric="m.py:f", budget="1%", error_held_out=None, random=True, notes=["Too few"])
    assert told_accuracy(few) == (
        "Drop of m.py:f, all samples together: 9.0e-03 on 32 samples of the search; budget 1%. "
        "The samples are random numbers. Too few."
    )


def test_the_worst_sample_and_other_metrics_are_told_where_they_are_known() -> None:
    found = (
        Quality("", 9.2e-3, 8e-3, 9.9e-3, worst=0.16),
        Quality("agreement", 0.01, score=0.99, reference=1.0),
        Quality("top1", 0.01, score=0.7, reference=0.71),
        Quality("psnr", 0.0),
    )
    told = told_accuracy(replace(ACCURACY, held_out=found, over_budget=3, over="worst"))
    assert told.startswith("Relative error of the answer, of the worst sample: 9.0e-03")
    assert "The worst sample alone: 1.6e-01; 3 of 100 held out are over the budget." in told
    assert "agreement 0.99, top1 0.7 (the model itself 0.7100), psnr of identical outputs." in told


def test_where_everything_computes_in_float32_there_is_no_front_to_show(tmp_path: Path) -> None:
    text = printed(lambda console: print_result(float32_only(), console))
    assert "latency against error" not in text
    write_html(tmp_path / "report.html", float32_only())
    assert "Latency against error" not in (tmp_path / "report.html").read_text()


def test_the_page_holds_the_picture_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    write_html(tmp_path / "report.html", make_result())
    page = (tmp_path / "report.html").read_text()
    assert '<svg class="front"' in page
    assert "prefers-color-scheme: dark" in page
    for link in re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", page):
        assert link.startswith("#"), link
    assert not re.search(r"<(?:script|link|img|iframe)|@import|url\((?!#)", page)


def drawing(points: list[FrontPoint] | None = None, largest: float | None = 0.01) -> ElementTree.Element:
    return ElementTree.fromstring(front_svg(points or front_points(), replace(ACCURACY, largest=largest)))


def of_class(svg: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [element for element in svg.iter() if element.get("class") == kind]


def test_the_picture_marks_the_answer_the_budget_and_each_backend_alone() -> None:
    svg = drawing()
    (answer,) = of_class(svg, "answer")
    assert answer.findtext("title") == "630.00 ms, error 9.0e-03: the answer; found by crossover, float32 and int8"
    (budget,) = of_class(svg, "budget")
    over = [point for point in of_class(svg, "single") if float(point.get("cx", "")) > float(budget.get("x1", ""))]
    assert [point.findtext("title", "").partition(": ")[2] for point in over] == [OVER]
    words = [text.text for text in svg.iter("text")]
    assert {"answer", "openvino", "onnxruntime/nchw", "openvino/int8", "float32", "error", "latency (ms)"} <= {*words}
    assert len(of_class(svg, "pareto")) == sum(p.pareto and not p.single and not p.answer for p in front_points())
    assert not of_class(drawing(largest=None), "budget")


def test_the_picture_is_told_in_words() -> None:
    svg = drawing()
    assert svg.get("role") == "img"
    named = {element.get("id"): element.text or "" for element in svg.iter() if element.get("id")}
    title, told = (named[name] for name in svg.get("aria-labelledby", "").split())
    assert title == "Latency against error, budget 0.01"
    assert "The answer: 630.00 ms at 9.0e-03" in told


def test_the_front_is_a_line_that_only_goes_right_and_down() -> None:
    (line,) = of_class(drawing(), "step")
    path = line.get("d", "")
    across = [float(x) for x in re.findall(r"[MH]([\d.]+)", path)]
    down = [float(y) for y in re.findall(r"(?:,|V)([\d.]+)", path)]
    assert across == sorted(across)
    assert down == sorted(down)
    assert len(down) == sum(point.pareto for point in front_points())


def test_names_do_not_cover_each_other() -> None:
    crowd = [FrontPoint(500.0 + k, 2e-2, "", "alone", (f"a{k}",), f"backend/variant-{k}") for k in range(12)]
    svg = drawing([*front_points(), *crowd])
    boxes = []
    for text in svg.iter("text"):
        if (text.text or "").startswith("backend/"):
            wide = LETTER * len(text.text or "")
            x = float(text.get("x", "")) - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor", "")]
            boxes.append((x, float(text.get("y", "")), x + wide))
    assert len(boxes) == 12
    for one, other in itertools.combinations(boxes, 2):
        assert abs(one[1] - other[1]) >= 11 or one[2] <= other[0] or other[2] <= one[0]


@pytest.mark.parametrize("error", [0.0, -0.01, None])
def test_a_metric_that_does_not_drop_is_drawn_too(error: float | None) -> None:
    points = [replace(front_points()[5], error=error, pareto=error is not None), *front_points()]
    dots = sum(len(of_class(drawing(points), kind)) for kind in ("answer", "single", "pareto", "placement"))
    assert dots == len(points) - (error is None)
