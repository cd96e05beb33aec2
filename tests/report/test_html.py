"""Page of a run: contrast, size, escaped names, and files beside it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.report.html import CURVE_FROM, REPORT, write_html
from collage_evo.report.result import Latency, Operator, RegionResult, Result
from tests.support.results import result

WON = result()


def page_of(given: Result, folder: Path) -> str:
    write_html(folder / REPORT, given)
    return (folder / REPORT).read_text()


def test_a_page_of_many_marks_and_operators_is_small_and_has_few_tab_stops(tmp_path: Path) -> None:
    kinds = [f"Kind{k * k % 251}" for k in range(500)]
    names = tuple(f"/encoder/layer.{k}/attention/self/{kind}" for k, kind in enumerate(kinds))
    region = RegionResult("openvino", "bf16", names, 3.0, operators=tuple(Operator(k, "bfloat16") for k in kinds))
    front = [replace(point, key=f"{k}") for k in range(10) for point in WON.front]
    page = page_of(replace(WON, placement=[region], front=front), tmp_path)
    assert len(page.encode()) < 1_000_000
    assert page.count('class="point"') == 2 * len(front)
    assert "<details open" not in page
    seen = re.sub(r"</summary>.*?</details>", "</summary></details>", page, flags=re.DOTALL)
    assert 0 < len(re.findall(r"<(?:a|button|input|select|textarea|summary)\b|\btabindex", seen)) <= 15
    assert "tabindex" not in page


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_contrast_with_their_ground(dark: bool, tmp_path: Path) -> None:
    style = page_of(WON, tmp_path).partition("<style>")[2]
    light, _, after = style.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w]+): (#\w+)", light))
    if dark:
        found |= dict(re.findall(r"--([\w]+): (#\w+)", after.partition("}")[0]))
    pairs = [(ink, ground) for ground in ("paper", "card") for ink in ("ink", "dim", "limit", "single", "mark")]
    pairs += [("chip", ground) for ground in ("float32", "bfloat16", "int8", "other")]
    assert [pair for pair in pairs if contrast(found[pair[0]], found[pair[1]]) < 4.5] == []


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio; 4.5 is its level AA for text."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_names_of_a_file_are_text_on_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    region = RegionResult("openvino", "bf16", (evil,), 3.0, operators=(Operator(evil, "float32"),))
    baselines = [*WON.baselines, Latency("tvm", reason=evil)]
    spoilt = replace(WON, model={**WON.model, "name": evil}, placement=[region], baselines=baselines)
    assert "<script" not in page_of(spoilt, tmp_path)


def test_a_faster_library_that_exceeds_the_budget_says_so_beside_its_bar(tmp_path: Path) -> None:
    (_, openvino), speedup = WON.libraries, WON.libraries[1].speedup
    slower = replace(openvino, speedup=replace(speedup, estimate=0.8), keeps=False)
    page = page_of(replace(WON, libraries=(slower,)), tmp_path)
    assert "the answer is 0.800 times (1.07 to 1.45) as fast; it exceeds the budget" in page


@pytest.mark.parametrize("placements", [CURVE_FROM - 1, CURVE_FROM])
def test_a_search_has_a_picture_from_ten_placements_on(placements: int, tmp_path: Path) -> None:
    assert WON.search is not None
    page = page_of(replace(WON, search=replace(WON.search, evaluations=placements)), tmp_path)
    assert ('class="front curve"' in page) is (placements == 10)
    assert f"{placements} placements were timed" in page


def test_a_result_of_an_earlier_version_has_a_page_without_the_tables_that_it_lacks(tmp_path: Path) -> None:
    page = page_of(WON, tmp_path)
    assert "Where the time goes" in page
    assert "What lower precisions save" in page
    regions = [replace(one, operators=tuple(Operator(o.kind, o.arithmetic) for o in one.operators))
               for one in WON.placement]  # fmt: skip
    old = page_of(replace(WON, placement=regions, saved=()), tmp_path)
    assert "Where the time goes" not in old
    assert "What lower precisions save" not in old


def test_a_spread_is_of_runs_and_never_of_a_single_one(tmp_path: Path) -> None:
    assert "(625 to 640, the 10th to the 90th percentile)" in page_of(WON, tmp_path)
    once = replace(WON.best, p10_ms=630.0, p90_ms=630.0)
    assert "percentile)" not in page_of(replace(WON, best=once), tmp_path)
    throughput = replace(WON, objective="throughput")
    assert "percentile)" not in page_of(throughput, tmp_path), "those are of single sessions"


def test_the_page_names_the_file_of_library_messages_if_there_is_one(tmp_path: Path) -> None:
    assert "details.log" not in page_of(WON, tmp_path)
    (tmp_path / "details.log").write_text("a library's words\n")
    assert f"{tmp_path}/details.log" in page_of(WON, tmp_path)
