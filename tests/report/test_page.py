"""The page: its first words answer what, how much faster, how wrong and why; it fits any screen and needs nothing."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from collage_evo.report.front import PHASES
from collage_evo.report.html import IN_TURNS, NOT_TIMED, bars, error_share, singles_in_words, write_overview
from collage_evo.report.places import COMMAND
from collage_evo.report.result import Finished, Latency, Operator, RegionResult, SeedResult, environment
from collage_evo.report.summary import verdict, verdict_of_profiles
from collage_evo.search.evolution.origin import Origin, Way
from tests.report.helpers import page_of
from tests.report.test_summary import INSIDE, OPENVINO, RESULTS, mixed, nothing_won


def words(page: str) -> str:
    """What a person sees of it."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL).split())


@pytest.mark.parametrize("name", RESULTS)
def test_the_page_begins_with_the_verdict_and_what_decided_it_in_plain_words(name: str, tmp_path: Path) -> None:
    result = RESULTS[name]()
    page = page_of(result, tmp_path)
    assert words(page.partition("<body>")[2]).startswith(verdict(result))
    assert f"<h1>{verdict(result)}</h1>" in page
    assert re.findall(r"<h(\d)", page)[0] == "1"
    assert set(re.findall(r"<h(\d)", page)[1:]) == {"2"}
    first = words(page.partition("The model from input to output")[0])
    places = [first.index(told) for told in ("Speed-up", "Error", "Why", "Latency against error")]
    assert places == sorted(places)
    assert "ONNX Runtime in float32" in first
    assert INSIDE.findall(first[: places[-1]]) == []
    plain = words(page)
    for allowed in (*(str(node) for region in result.placement for node in region.nodes), str(tmp_path)):
        plain = plain.replace(allowed, "")
    plain = re.sub(r"with its defaults|with their defaults|onnxruntime/nchw|detector.onnx", "", plain)
    assert INSIDE.findall(plain) == []
    assert not re.search(r"greedy|\bdp\b|single:|load s\b", plain)


def test_a_page_of_many_marks_and_operators_is_small_and_has_few_tab_stops(tmp_path: Path) -> None:
    kinds = [f"Kind{k * k % 251}" for k in range(500)]
    names = tuple(f"/encoder/layer.{k}/attention/self/{kind}" for k, kind in enumerate(kinds))
    region = RegionResult("openvino", "bf16", names, 3.0, operators=tuple(Operator(k, "bfloat16") for k in kinds))
    front = [replace(point, key=f"{k}") for k in range(10) for point in mixed().front]
    page = page_of(replace(mixed(), placement=[region], front=front), tmp_path)
    assert len(page.encode()) < 1_000_000
    assert page.count('class="point"') == 2 * len(front)
    assert "<details open" not in page
    seen = re.sub(r"</summary>.*?</details>", "</summary></details>", page, flags=re.DOTALL)
    stops = re.findall(r"<(?:a|button|input|select|textarea|summary)\b|\btabindex", seen)
    assert 0 < len(stops) <= 15
    assert "tabindex" not in page


def test_the_foot_says_when_by_which_command_and_on_what_the_numbers_were_taken(tmp_path: Path) -> None:
    made = {
        **mixed().environment,
        "date": "2026-01-02T03:04:05+01:00",
        "command": "python -m collage_evo run detector.onnx --budget 0.01",
        "backends": {"openvino": "2025.0", "ncnn": "1.0.1"},
        "libraries": {"numpy": "2.3.4", "deap": "1.4.3"},
        "cpu": "Processor 9000",
        "cores": 8,
    }
    foot = words(page_of(replace(mixed(), environment=made), tmp_path).partition("<footer>")[2])
    for fact in (
        "Date 2026-01-02 03:04:05+01:00", f"Command {made['command']}", "Processor Processor 9000; 2 of 8 cores used",
        "Model detector.onnx", "OpenVINO 2025.0", "ncnn 1.0.1", "numpy 2.3.4", "deap 1.4.3", "Python 3",
    ):  # fmt: skip
        assert fact in foot
    without = {**made, "command": ""}
    foot = words(page_of(replace(mixed(), environment=without), tmp_path).partition("<footer>")[2])
    assert "Command none: a Python program called the package" in foot


def test_what_a_result_holds_for_is_taken_down_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/venv/bin/collage-evo", "run", "my model.onnx", "--threads", "2"])
    before = datetime.now().astimezone().replace(microsecond=0)
    made = environment("a CPU", {"ncnn": "1"})
    assert made["command"] == f"{COMMAND} run 'my model.onnx' --threads 2"
    assert before <= datetime.fromisoformat(made["date"]) <= datetime.now().astimezone()
    monkeypatch.setattr(sys, "argv", ["/opt/collage_evo/__main__.py", "resume", "runs/x"])
    assert environment("a CPU", {})["command"] == f"{COMMAND} resume runs/x"
    monkeypatch.setattr(sys, "argv", ["/opt/service/__main__.py", "--token", "secret"])
    assert environment("a CPU", {})["command"] == "", "another program's arguments are its own"


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_stand_out_from_what_they_are_on(dark: bool, tmp_path: Path) -> None:
    style = page_of(mixed(), tmp_path).partition("<style>")[2]
    light, _, after = style.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w]+): (#\w+)", light))
    if dark:
        found |= dict(re.findall(r"--([\w]+): (#\w+)", after.partition("}")[0]))
    for ground in ("paper", "card"):
        for ink in ("ink", "dim", "limit", "single", "mark"):
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)
    for ground in ("float32", "bfloat16", "int8", "other"):
        assert contrast(found["chip"], found[ground]) >= 4.5, ground


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio; 4.5 is its level AA for text."""

    def luminance(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
        parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_headers_of_tables_say_of_what_tables_scroll_and_pictures_have_a_text(tmp_path: Path) -> None:
    page = page_of(mixed(), tmp_path)
    assert page.count("<th ") == len(re.findall(r'<th scope="(?:col|row|rowgroup)"', page)) > 0
    assert "<th>" not in page
    assert page.count("<table") == page.count('<div class="scroll"><table'), "nothing else is wider than the screen"
    assert 'name="viewport" content="width=device-width' in page
    assert "for-narrow" in page
    for picture in re.findall(r"<svg[^>]*>.{9}", page, flags=re.DOTALL):
        assert 'aria-hidden="true"' in picture or (' role="img"' in picture and "><title" in picture), picture


def test_times_of_two_phases_stand_under_two_headings(tmp_path: Path) -> None:
    points = [replace(point, raced=point.single == "onnxruntime/nchw") for point in mixed().front]
    result = replace(mixed(), front=points, libraries=())
    found = dict(singles_in_words(result))
    assert list(found) == [IN_TURNS, PHASES["at first"], NOT_TIMED]
    assert {(name, answer) for name, _, _, _, answer in found[IN_TURNS]} == {
        ("The answer", True),
        ("ONNX Runtime in float32 (nchw)", False),
    }
    table = words(page_of(result, tmp_path).partition("Baselines: each library on the whole model")[2])
    places = [table.index(phase) for phase in found]
    assert places == sorted(places)


def test_the_curve_of_the_search_has_times_of_the_search_only(tmp_path: Path) -> None:
    steps = [{"seconds": 1.0, "best_ms": 5.0}, {"seconds": 2.0, "best_ms": 4.0}]
    before = mixed().search
    assert before is not None
    search = replace(before, convergence=steps)
    seed = SeedResult(Origin(Way.SINGLE, ("openvino",)), 9.5, Latency("single:openvino", 9.4, 9.3, 9.5, 5))
    race = [Latency("openvino", 9.9, 9.8, 10.0, 100)]
    result = replace(mixed(), search=search, seeds=[seed], baselines=race, best_single="openvino")
    drawn = page_of(result, tmp_path).partition("How the search went")[2].partition("What serving")[0]
    labels = [float(label) for label in re.findall(r'anchor: end[^>]*>([\d.]+)</text>', drawn)]
    assert labels
    assert max(labels) < 6.0, "the axis reaches to times of the search, not to the race's 9.9 ms"
    assert 'class="budget"' not in drawn, "a placement mostly in OpenVINO is not the baseline"


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


def test_what_exceeds_the_budget_is_told_beside_its_bar(tmp_path: Path) -> None:
    slower = replace(OPENVINO, speedup=replace(OPENVINO.speedup, estimate=0.8), keeps=False)
    text = words(page_of(replace(mixed(), libraries=(slower,)), tmp_path))
    assert "the answer is 0.800 times (1.07 to 1.45) as fast; it exceeds the budget" in text
    over = replace(mixed().accuracy, error_held_out=0.02)
    broken_text = words(page_of(replace(mixed(), accuracy=over), tmp_path))
    assert "more than the budget" in broken_text
    assert "% of the budget used" not in broken_text


def test_names_out_of_a_file_are_text_on_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    region = RegionResult("openvino", "bf16", (evil,), 3.0, operators=(Operator(evil, "float32"),))
    baselines = [*mixed().baselines, Latency("tvm", reason=evil)]
    result = replace(mixed(), model={**mixed().model, "name": evil}, placement=[region], baselines=baselines)
    assert "<script" not in page_of(result, tmp_path)


def test_the_page_of_several_profiles_has_their_verdict_and_a_table_with_links(tmp_path: Path) -> None:
    made = (nothing_won(), mixed())
    finished = {f"profiles/{k}/report.html": Finished({"x": [1, 3, k]}, one) for k, one in enumerate(made)}
    write_overview(tmp_path / "report.html", finished, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert words(page.partition("<body>")[2]).startswith(verdict_of_profiles(made))
    assert page.partition("<footer>")[0].count("<tr>") == 3
    assert "1235" in words(page)
    assert "2.85 times as fast as ONNX Runtime" in words(page)
    assert '<a href="profiles/1/report.html">x [1, 3, 1]</a>' in page
    assert "prefers-color-scheme: dark" in page


def test_a_library_that_is_the_answer_is_said_to_be_it(tmp_path: Path) -> None:
    assert "This is OpenVINO in bfloat16 with its defaults" in words(page_of(nothing_won(), tmp_path))


def test_ratios_and_the_error_have_the_words_of_the_command_line(tmp_path: Path) -> None:
    page = words(page_of(mixed(), tmp_path))
    assert "ONNX Runtime in float32 the answer is 2.85 times (2.46 to 3.29) as fast" in page
    assert "92 % of the budget used" in page
    assert "times as long" not in page


def test_the_page_names_the_file_of_libraries_words_where_there_is_one(tmp_path: Path) -> None:
    assert "details.log" not in page_of(mixed(), tmp_path)
    (tmp_path / "details.log").write_text("a library's words\n")
    assert f"{tmp_path}/details.log" in page_of(mixed(), tmp_path)
