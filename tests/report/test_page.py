"""The page: its first words answer what, how much faster, how wrong and why; it fits any screen and needs nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.report.html import bars, error_share, write_html, write_overview
from collage_evo.report.result import Latency, Operator, RegionResult, Result
from collage_evo.report.summary import Finished
from tests.report.test_summary import INSIDE, RESULTS, mixed, nothing_won


def page_of(result: Result, tmp_path: Path) -> str:
    write_html(tmp_path / "report.html", result)
    return (tmp_path / "report.html").read_text()


def words(page: str) -> str:
    """What a person sees of it."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL).split())


@pytest.mark.parametrize("name", RESULTS)
def test_what_comes_first_says_what_how_much_faster_how_wrong_and_why(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]()
    first = words(page_of(result, tmp_path).partition("The model from input to output")[0])
    places = [first.index(told) for told in ("How much faster", "How wrong", "Why", "Latency against error")]
    assert places == sorted(places)
    assert "ONNX Runtime in float32" in first
    assert INSIDE.findall(first[: places[-1]]) == []


def test_the_number_of_the_check_has_another_name_and_stands_elsewhere(tmp_path: Path) -> None:
    text = words(page_of(mixed(), tmp_path))
    first, _, details = text.partition("Details")
    assert "0.051" not in first
    assert "largest difference of any output 0.051" in details


def test_the_bars_are_as_long_as_what_they_stand_for_takes() -> None:
    found = bars(mixed())
    assert [bar.answer for bar in found] == [True, False, False]
    assert [round(bar.percent / found[0].percent, 2) for bar in found] == [1.0, 1.25, 2.85]
    assert max(bar.percent for bar in found) == 100.0
    assert error_share(mixed()) == pytest.approx(92.0)
    assert error_share(replace(mixed(), accuracy=replace(mixed().accuracy, budget="exact"))) is None


def test_tables_scroll_inside_of_themselves_and_nothing_else_is_wider_than_the_screen(tmp_path: Path) -> None:
    page = page_of(mixed(), tmp_path)
    assert page.count("<table") == page.count('<div class="scroll"><table')
    assert 'name="viewport" content="width=device-width' in page
    assert "for-narrow" in page


def test_a_model_of_five_hundred_operators_makes_a_page_of_less_than_a_megabyte(tmp_path: Path) -> None:
    kinds = [f"Kind{k * k % 251}" for k in range(500)]
    names = tuple(f"/encoder/layer.{k}/attention/self/{kind}" for k, kind in enumerate(kinds))
    region = RegionResult("openvino", "bf16", names, 3.0, operators=tuple(Operator(k, "bfloat16") for k in kinds))
    front = [replace(p, key=f"{k}") for k in range(10) for p in mixed().front]
    page = page_of(replace(mixed(), placement=[region], front=front), tmp_path)
    assert len(page.encode()) < 1_000_000


def test_names_out_of_a_file_are_text_on_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    region = RegionResult("openvino", "bf16", (evil,), 3.0, operators=(Operator(evil, "float32"),))
    baselines = [*mixed().baselines, Latency("tvm", reason=evil)]
    result = replace(mixed(), model={**mixed().model, "name": evil}, placement=[region], baselines=baselines)
    assert "<script" not in page_of(result, tmp_path)


def test_the_page_of_several_profiles_has_a_table_with_times_and_its_style(tmp_path: Path) -> None:
    finished = {f"profiles/{k}/report.html": Finished({"x": [1, 3, k]}, nothing_won()) for k in range(2)}
    write_overview(tmp_path / "report.html", finished, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<tr>") == 3
    assert "1235" in words(page)
    assert "2.85 times as fast as ONNX Runtime" in words(page)
    assert '<a href="profiles/1/report.html">x [1, 3, 1]</a>' in page
    assert "prefers-color-scheme: dark" in page


def test_a_library_that_is_the_answer_is_said_to_be_it(tmp_path: Path) -> None:
    assert "This is OpenVINO in bfloat16 with its defaults" in words(page_of(nothing_won(), tmp_path))
