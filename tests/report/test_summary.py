"""The end of a run: fifteen lines without words of the inside, and one number for each name."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.accuracy.judge import Quality
from collage_evo.errors import InputError
from collage_evo.report.accuracy import describe_loss
from collage_evo.report.advice import advice
from collage_evo.report.console import PlainConsole
from collage_evo.report.places import COMMAND
from collage_evo.report.result import (
    SCHEMA,
    Accuracy,
    Finished,
    FrontPoint,
    LibraryResult,
    Result,
    Speedup,
    read_finished,
    write_result,
)
from collage_evo.report.summary import LINES, WIDTH, summary
from collage_evo.report.terminal import print_summary
from tests.report.helpers import ACCURACY, front_points, make_result, page_of

RUN = Path("runs/detector")
INSIDE = re.compile(
    r"seed|heat|taking turns|dp-|border|fusable|estimate|genome|incumbent|"
    r"out-|crossover|mutation|anchor|openvino/|onnxruntime|far behind|\bdefault\b",
    re.IGNORECASE,
)
"""Words that only who wrote the program understands; docs/usage.md defines placement, baseline, region, candidate."""
FASTER = Speedup(1.25, 1.07, 1.45, (1.2, 1.3))
ITSELF = Speedup(1.0, 1.0, 1.0, (), by_definition=True)
ONNXRUNTIME = LibraryResult("onnxruntime", "onnxruntime", "default", 6.3, 1e-6, Speedup(2.85, 2.46, 3.29, (2.8, 2.9)))
OPENVINO = LibraryResult("openvino/bf16", "openvino", "bf16", 2.8, 6e-3, FASTER)


def mixed() -> Result:
    """A mixture won over OpenVINO, which is the best baseline."""
    return replace(
        make_result(),
        best_single="openvino/bf16",
        speedup_over_best_single=FASTER,
        candidate_speedup=FASTER,
        libraries=(ONNXRUNTIME, OPENVINO),
        front=[replace(point, what="OpenVINO in bfloat16 with 2 of 4 operators in int8") for point in front_points()],
        numerics={"max_relative_error": 0.0513, "inputs": 3},
    )


def chosen() -> Result:
    """The fastest library won, which most do not use."""
    return replace(
        mixed(),
        answer="ncnn",
        best_single="ncnn",
        speedup_over_best_single=ITSELF,
        candidate_speedup=Speedup(0.98, 0.95, 1.01, (0.98, 0.99)),
    )


def nothing_won() -> Result:
    """The answer is what one has already, and the error is on random inputs."""
    accuracy = replace(ACCURACY, random=True)
    return replace(
        chosen(),
        answer="openvino/bf16",
        best_single="openvino/bf16",
        environment={**make_result().environment, "backends": {"openvino": "2025.0"}},
        libraries=(ONNXRUNTIME, replace(OPENVINO, speedup=ITSELF)),
        accuracy=accuracy,
        front=[
            FrontPoint(2.0, 1e-3, "", "alone", ("bfloat16",), "openvino/bf16", True, True, True),
            FrontPoint(1.1, 3e-2, "key", "mixed", ("bfloat16",), pareto=True),
        ],
    )


def broken() -> Result:
    """Not even float32 keeps the budget; two long notes say so."""
    notes = [
        "The answer exceeds the budget, which nothing that was measured meets: float32 is closest",
        "OpenVINO in bfloat16 was faster, but its held-out error 0.012 exceeds the budget 0.01",
    ] * 3
    accuracy = replace(ACCURACY, error_held_out=0.02, notes=notes)
    return replace(nothing_won(), accuracy=accuracy)


RESULTS = {"mixed": mixed, "chosen": chosen, "nothing won": nothing_won, "broken": broken}


def end(result: Result) -> list[str]:
    return summary([Finished({}, result)], RUN)


@pytest.mark.parametrize("name", RESULTS)
def test_a_run_ends_in_fifteen_lines_that_say_what_won_how_fast_how_wrong_and_where_it_is(name: str) -> None:
    result = RESULTS[name]()
    lines = end(result)
    assert len(lines) <= LINES == 15
    assert all(len(line) <= WIDTH for line in lines if COMMAND not in line)
    assert INSIDE.findall(" ".join(lines)) == []
    text = " ".join(" ".join(lines).split())
    assert re.search(r"2.85 times as fast as ONNX Runtime in float32 with its defaults \(.*2.46 to 3.29\)", text)
    assert text.count("(98 % interval ") == 1
    places = (f"export {RUN} --to DIR", f"show {RUN} --all")
    for words in ("the best baseline", "best.collage", "report.html", *places):
        assert words in text
    assert len(re.findall(r"\berror [\d.]+, budget 0\.01", text)) == 1
    assert "0.051" not in text, "the check's number has no place beside the budget"
    assert not re.search(rf"\b{result.accuracy.error_search}\b", text)


def test_the_end_of_a_run_says_that_the_machine_changed() -> None:
    told = "the machine changed during the run: the answer took 10 ms in the search and 20 ms in the final comparison"
    text = " ".join(" ".join(end(replace(mixed(), changed=told))).split())
    assert f"T{told[1:]}." in text
    assert "machine changed" not in " ".join(end(mixed()))


def test_the_end_of_a_run_that_skipped_its_search_says_so() -> None:
    search = mixed().search
    assert search is not None
    assert "skipped the search" not in " ".join(end(mixed()))
    assert "skipped the search" in " ".join(end(replace(mixed(), search=replace(search, skipped=True))))


def test_an_end_that_is_too_long_keeps_the_error_and_the_speedup_over_the_best_baseline() -> None:
    held = replace(mixed(), target={**mixed().target, "held": "avx2"})
    held = replace(held, environment={**held.environment, "cpu": "Some(R) Processor With a Long Name, held to avx2"})
    others = [replace(OPENVINO, name=f"other{number}") for number in range(9)]
    lines = end(replace(held, libraries=[*others, *held.libraries], changed="the machine changed during the run"))
    text = " ".join(" ".join(lines).split())
    assert len(lines) <= LINES
    assert text.count("with its defaults") < len(others)
    for words in ("error 0.0", "budget 0.01", "), the best baseline", "on Some(R)", "The machine changed"):
        assert words in text


def test_an_end_that_is_too_long_keeps_advice_before_notes() -> None:
    notes = ("This processor does not compute in bfloat16, so only float32 and int8 took part",) * 4
    full = replace(nothing_won(), accuracy=replace(nothing_won().accuracy, notes=notes))
    first, *_ = advice(full, RUN)
    text = " ".join(" ".join(end(full)).split())
    assert f"Next: {first}" in text
    assert text.count("does not compute in bfloat16") < len(notes)


def test_intervals_are_told_at_the_level_that_they_are_of(tmp_path: Path) -> None:
    sure = replace(FASTER, level=0.95)
    libraries = (replace(OPENVINO, speedup=sure),)
    result = replace(mixed(), speedup_over_best_single=sure, candidate_speedup=sure, libraries=libraries)
    assert "(95 % interval 1.07 to 1.45)" in " ".join(" ".join(end(result)).split())
    page = page_of(result, tmp_path)
    assert "in brackets 95 % intervals" in page
    assert "the whole 95 % interval is above 1" in page
    assert "98 %" not in page


def test_the_error_is_told_in_the_words_of_the_metric_and_the_unit_of_the_budget() -> None:
    accuracy = Accuracy("m.py:accuracy", "1%", 0.009, 0.002, 0.0045, None, {"held_out": 50}, False)
    text = " ".join(end(replace(mixed(), accuracy=accuracy)))
    assert "drop of m.py:accuracy 0.5%, budget 1%" in text
    exact = replace(accuracy, metric="", budget="exact", largest=None)
    assert "the budget is float32 throughout" in " ".join(end(replace(mixed(), accuracy=exact)))


@pytest.mark.parametrize(
    ("count", "unseen", "random", "told"),
    [
        (1, True, False, "(1 held-out sample)"),
        (1, False, False, "(1 sample)"),
        (2, True, False, "(2 held-out samples)"),
        (1, True, True, "1 random input)"),
        (16, True, True, "16 random inputs)"),
    ],
)
def test_samples_are_counted_and_called_unseen_only_if_they_are(
    count: int, unseen: bool, random: bool, told: str
) -> None:
    accuracy = replace(ACCURACY, samples={"held_out": count, "search": 5}, unseen=unseen, random=random)
    assert told in describe_loss(accuracy)


def test_the_error_is_told_with_single_samples_and_changed_labels_as_far_as_they_are_known() -> None:
    qualities = (Quality("", 0.018, worst=0.031), Quality("agreement", 0.1, score=0.9, reference=1.0))
    accuracy = replace(ACCURACY, budget=0.02, largest=0.02, error_held_out=0.018, samples={"held_out": 20})
    accuracy = replace(accuracy, held_out=qualities, over_budget=5)
    details = "20 held-out samples; worst sample 0.031; 5 of 20 exceed the budget; labels changed: 2 of 20"
    assert describe_loss(accuracy) == f"relative error 0.018, budget 0.02 ({details})"
    rows = replace(accuracy, held_out=(qualities[0], replace(qualities[1], error=0.111)))
    assert describe_loss(rows).endswith("; labels changed: 11 %)"), "samples of several rows"
    own = replace(accuracy, metric="agreement", held_out=(Quality("agreement", 0.1, worst=1.0), Quality("", 0.018)))
    assert describe_loss(own) == "drop of agreement 0.018, budget 0.02 (20 held-out samples)"
    assert describe_loss(replace(accuracy, held_out=())).endswith("budget 0.02 (20 held-out samples)")


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_in_memory_names_no_folder_and_no_command_but_what_keeps_it(name: str) -> None:
    lines = summary([Finished({}, RESULTS[name](), Path("/gone/soon"))], None)
    assert len(lines) <= LINES
    text = "\n".join(lines)
    assert COMMAND not in text
    assert "best.collage" not in text
    assert "gone" not in text
    assert "result.save(PATH)" in text


def test_where_nothing_is_won_it_says_what_the_run_knows_to_help() -> None:
    text = " ".join(" ".join(end(nothing_won())).split())
    assert "this is OpenVINO in bfloat16 with its defaults" in text
    assert "give inputs of your own (--data): int8 takes part then" in text
    with_int8 = replace(nothing_won().front[1], arithmetics=("bfloat16", "int8"))
    fed = replace(nothing_won(), front=[nothing_won().front[0], with_int8])
    assert f"pick {RUN} --budget 0.035" in " ".join(end(fed)), "0.03, and more on held-out samples"
    nothing_faster = replace(mixed(), front=[point for point in mixed().front if point.feasible])
    assert "pick" not in " ".join(end(nothing_faster))


def test_a_mixture_that_was_not_proved_faster_is_in_the_first_lines_with_its_figures() -> None:
    tried = Speedup(1.72, 0.75, 3.95, (1.62, 1.73, 1.82))
    lost = " ".join(" ".join(end(replace(chosen(), candidate_speedup=tried))).split())
    assert "not proved faster: the best placement," in lost
    assert "1.72 times (0.750 to 3.95) as fast as ncnn in float32 in 3 rounds of the final comparison" in lost
    beside = " ".join(" ".join(end(replace(chosen(), candidate_speedup=tried, rival="openvino/bf16"))).split())
    assert "as fast as OpenVINO in bfloat16 in 3 rounds" in beside, "the one that it does not beat"
    assert "not proved faster" not in " ".join(end(replace(mixed(), candidate_speedup=tried)))
    assert "not proved faster" not in " ".join(end(replace(chosen(), candidate_speedup=ITSELF)))
    assert "not proved faster" not in " ".join(end(chosen())), "it was slower"


def test_a_library_that_is_faster_than_itself_says_on_which_graph() -> None:
    one = replace(make_result().placement[0], variant="default")
    model = {**mixed().model, "nodes": 39, "file_nodes": 121}
    result = replace(mixed(), model=model, placement=[one], best_single="onnxruntime")
    assert "ONNX Runtime in float32 on the simplified graph (121 operators to 39)" in " ".join(end(result))
    assert "simplified" not in " ".join(end(replace(result, answer="onnxruntime")))
    assert "simplified" not in " ".join(end(replace(result, best_single="ncnn", libraries=(OPENVINO,))))


def test_several_profiles_have_a_line_each_and_still_fit() -> None:
    profiles = [Finished({"x": [1, 3, size, size]}, mixed()) for size in range(32, 32 * 30, 32)]
    lines = summary(profiles, RUN)
    assert len(lines) <= LINES
    assert "x [1, 3, 32, 32]" in " ".join(lines)
    assert any("more, in the report" in line for line in lines)
    assert INSIDE.findall(" ".join(lines)) == []


def test_what_was_written_is_read_again_and_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(path, mixed())
    assert end(read_finished(tmp_path)[0].result) == end(mixed())
    path.write_text(path.read_text().replace(f'"schema": {SCHEMA}', '"schema": 4'))
    with pytest.raises(InputError, match=f"has schema 4, this version reads {SCHEMA}"):
        read_finished(tmp_path)


def test_commands_are_of_the_run_that_an_answer_was_picked_from_and_can_be_copied() -> None:
    place = Path("my runs/detector/picked/0.01")
    told = "\n".join((*advice(nothing_won(), place), *summary([Finished({}, nothing_won())], place)))
    assert f"{COMMAND} pick 'my runs/detector' --budget" in told
    assert f"{COMMAND} export 'my runs/detector/picked/0.01' --to DIR" in told


@pytest.mark.parametrize("result", [nothing_won(), mixed()])
def test_a_command_stands_on_a_line_of_its_own_however_narrow_the_terminal_is(result: Result) -> None:
    place = Path("a folder", *(f"deeper-{k:03d}" for k in range(20)))
    console = PlainConsole(file=io.StringIO(), width=40, record=True)
    print_summary([Finished({}, result)], place, console)
    lines = [line for line in console.export_text().splitlines() if COMMAND in line]
    assert len(lines) >= 2
    for line in lines:
        assert line.startswith(f"    {COMMAND}")
        assert f"'{place}'" in line


def test_what_may_help_next_is_nothing_that_is_refused(tmp_path: Path) -> None:
    assert any(COMMAND in line for line in advice(nothing_won(), tmp_path))
    (tmp_path / "checkpoint.json").write_text("{}")  # nothing that it goes on by is there
    assert not any(COMMAND in line for line in advice(nothing_won(), tmp_path))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "matches.json").write_text("{}")
    assert any(COMMAND in line for line in advice(nothing_won(), tmp_path))
