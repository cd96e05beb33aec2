"""Every table fits a terminal of 80 columns, with each name in one piece."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from collage_evo.backends.registry import Entry
from collage_evo.report.console import PlainConsole
from collage_evo.report.explain import (
    NOT_MEASURED,
    BackendAnswer,
    Explanation,
    Offer,
    Refusal,
    RegionAnswer,
    RegionExplanation,
    print_explanation,
    print_region,
)
from collage_evo.report.listings import print_backends, print_conformance
from collage_evo.report.progress import LineReporter
from collage_evo.report.result import Latency, RewrittenNodes, Speeds
from collage_evo.report.study import TrialRow, Trials
from collage_evo.report.terminal import latency_table, placement_table, print_result, serving_table
from collage_evo.search.evolution.origin import Origin
from collage_evo.testing.finding import CHECKS, Finding, Report
from tests.report.helpers import BACKENDS, NODES, SEEDS, make_result, page_of

WIDTH = 80


def printed(show: Callable[[Console], object]) -> str:
    """What ``show`` prints on a terminal of 80 columns."""
    console = PlainConsole(width=WIDTH, file=io.StringIO(), record=True)
    show(console)
    return console.export_text()


def fits(text: str) -> bool:
    return "…" not in text and all(len(line) <= WIDTH for line in text.splitlines())


OPERATORS = ("LayerNormalization", "Conv")
OFFER = Offer("", "tuned-0123456789ab", OPERATORS, 1234.5678)
ANSWERS = (RegionAnswer("onnxruntime", (OFFER,), (), "", 1234.9876), RegionAnswer("tvm", (OFFER,), (), "", None))
VARIANTS = ("default", "nchw", "sgemm", "eager")
DEVICES = dict.fromkeys(VARIANTS, "cpu") | {"eager": "cuda"}
ENTRY = Entry("onnxruntime", "", True, "0.27.0.post1 schedules 2", ("cpu", "cuda"), VARIANTS, device_of=DEVICES)
FINDINGS = tuple(Finding(check, "case", "passed") for check in CHECKS for _ in range(1000))
KEYS = ("search.ga.population", "search.ga.explore", "search.ga.tournament", "search.ga.mutation_rate")
TRIALS = Trials("study", (TrialRow(12, "complete", 1.2345, dict.fromkeys(KEYS, 0.123456)),))

TABLES: dict[str, tuple[Callable[[Console], object], Sequence[str]]] = {
    "latencies": (
        lambda console: console.print(latency_table(make_result())),
        (*BACKENDS, "onnxruntime/nchw, best", "unlike the"),
    ),
    "placement": (
        lambda console: console.print(placement_table(make_result().placement)),
        ("onnxruntime/nchw", "tvm/tuned-0123456789ab", *NODES),
    ),
    "backends": (lambda console: print_backends([ENTRY], console), ("onnxruntime", "cuda", *VARIANTS)),
    "conformance": (
        lambda console: print_conformance(Report("openvino", "2026.4.1", FINDINGS, {}), console),
        (*CHECKS, "passed", "declined", "failed"),
    ),
    "region": (
        lambda console: print_region(RegionExplanation(0, "tvm", "default", 1.0, (("a", "Conv"),), ANSWERS), console),
        ("onnxruntime", "tvm/tuned-0123456789ab", "LayerNormalization", "1234.5678", "1234.9876"),
    ),
    "trials": (lambda console: TRIALS.print(console, "latency / best seed's"), [f"{key}=0.1235" for key in KEYS]),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_fits_with_each_name_in_one_piece(table: str) -> None:
    show, names = TABLES[table]
    text = printed(show)
    assert fits(text)
    assert [name for name in names if name not in text] == []


def test_seeds_are_told_in_words_with_the_spread_of_each_time() -> None:
    text = printed(lambda console: console.print(latency_table(make_result())))
    assert not re.search(r"seed|greedy|\bdp\b|single:", " ".join(text.split()))
    assert text.count("1230 .. 1251") == len(BACKENDS) - 1 + len(SEEDS) + 1


def test_seeds_of_one_origin_are_told_apart_by_what_they_are() -> None:
    (first, *rest), kind = make_result().seeds, "ladder:openvino/bf16"
    whats = [f"OpenVINO in bfloat16 with {count} of 100 operators in int8" for count in (35, 40)]
    reason = "timed only briefly"
    first = replace(first, kind=Origin.parse(kind), latency=Latency(kind, 1.0, reason=reason))
    levels = [replace(first, what=what) for what in whats]
    result = replace(make_result(), seeds=[*rest, *levels])
    text = " ".join(printed(lambda console: print_result(result, console)).split())
    for what in whats:
        assert f"mixed precision: {what}: {reason}" in text
    assert "mixed precision" in printed(lambda console: console.print(latency_table(result)))
    alone = replace(result, seeds=levels[:1])
    assert f"mixed precision, openvino/bf16: {reason}" in " ".join(
        printed(lambda console: print_result(alone, console)).split()
    )


def test_times_of_other_phases_are_marked_and_explained() -> None:
    result = make_result()
    plain = printed(lambda console: print_result(result, console))
    assert "~" not in plain
    baselines = [*result.baselines[:-1], replace(result.baselines[-1], median_ms=567.8).times(1.1)]
    changed = "the machine changed during the run: the answer took 10 ms in the search and 20 ms in the race"
    mixed = replace(result, baselines=baselines, changed=changed)
    text = printed(lambda console: print_result(mixed, console))
    assert fits(text)
    assert "~625" in text
    words = " ".join(text.split())
    assert "~: timed before it, as the ratio to what ran both times" in words
    assert "The machine changed during the run: the answer took 10 ms" in words


def test_the_reason_of_a_backend_that_has_no_time_is_printed_whole() -> None:
    text = printed(lambda console: print_result(make_result(), console))
    assert fits(text)
    reason = next(latency.reason for latency in make_result().baselines if latency.reason)
    assert f"ncnn: {reason}" in " ".join(text.split())


def test_what_serving_takes(tmp_path: Path) -> None:
    text = printed(lambda console: console.print(serving_table(make_result().serving)))
    assert fits(text)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert rows["onnxruntime/nchw"] == rows["best"] == ["1234.6", "123.5", "1.23"]
    assert rows["tvm"] == ["-", "98.7", "-"]
    page = page_of(make_result(), tmp_path).partition("What serving it takes")[2]
    assert all(figure in page for figure in ("1234.6", "123.5", "1.23", "98.7"))


def test_regions_say_on_which_device_they_run_where_there_are_two(tmp_path: Path) -> None:
    result = make_result()
    alone = printed(lambda console: console.print(placement_table(result.placement)))
    assert "cuda" not in alone
    two = [*result.placement[:-1], replace(result.placement[-1], device="cuda")]
    assert result.cost_model is not None
    copies = {way: {"fixed_ms": 0.0123, "ms_per_mb": 0.0456} for way in ("to_device", "to_host")}
    both = replace(result, placement=two, cost_model=replace(result.cost_model, copies=copies))
    text = printed(lambda console: console.print(placement_table(two)))
    assert fits(text)
    assert "cuda" in text
    assert "cpu" in text
    page = " ".join(page_of(both, tmp_path).split())
    assert " on cuda, 1 operator" in page
    assert "A copy to the host costs 0.0123 ms and 0.0456 ms a MB" in page


def test_a_region_that_runs_side_by_side_says_in_how_many_lanes(tmp_path: Path) -> None:
    result, lanes = make_result(), (("Conv, Relu", "Concat"), ("Conv",))
    regions = [replace(result.placement[0], backend="lanes", variant="onnxruntime-rows", lanes=lanes)]
    text = printed(lambda console: console.print(placement_table(regions)))
    assert fits(text)
    assert "lanes/onnxruntime-rows, 2 lanes" in text
    assert "2 lanes side by side" in page_of(replace(result, placement=regions), tmp_path)
    found = RegionExplanation(0, "lanes", "onnxruntime-rows", 1.0, (("a", "Conv"),), (), lanes)
    text = printed(lambda console: print_region(found, console))
    assert "lane 0: Conv, Relu; Concat" in text
    assert "lane 1: Conv" in text


def test_both_speeds_of_the_answer_are_told(tmp_path: Path) -> None:
    result = replace(make_result(), objective="throughput", speeds=Speeds(2, 12.34, 6.7, 149.25))
    text = printed(lambda console: print_result(result, console))
    assert fits(text)
    told = (
        "With the machine for itself: 12.3 ms a run. With all cores at work, 2 sessions of 2 threads: "
        "149 runs a second, 6.70 ms for each."
    )
    for words in (
        told,
        "2 session(s) at once: the machine's time for a run",
        "1.20 times the throughput of ONNX Runtime in float32 (nchw) (98 % interval 1.10 to 1.30)",
    ):
        assert words in " ".join(text.split())
    assert told in page_of(result, tmp_path)
    unknown = replace(result, speeds=Speeds(2, 12.34, None, None, "memory: used more than 8.0 GiB"))
    text = " ".join(printed(lambda console: print_result(unknown, console)).split())
    assert "2 sessions of 2 threads: not known (memory: used more than 8.0 GiB)" in text


def test_regions_say_what_is_rewritten_in_them(tmp_path: Path) -> None:
    result = make_result()
    assert "rewritten" not in printed(lambda console: console.print(placement_table(result.placement)))
    rules = {"a-rule": ("n1", "n2"), "b-rule": ("n3",)}
    written = (*(RewrittenNodes(*rule) for rule in rules.items()), RewrittenNodes("a-rule", ("n5",)))
    placement = [*result.placement[:-1], replace(result.placement[-1], rewrites=written)]
    text = printed(lambda console: console.print(placement_table(placement)))
    assert fits(text)
    assert {"a-rule", "(2", "times),", "b-rule"} <= set(text.split())
    page = page_of(replace(result, placement=placement), tmp_path)
    assert "a-rule: <code>n1, n2</code>; b-rule: <code>n3</code>" in page


def test_a_device_on_which_a_backend_declines_to_run_is_none_of_its_devices() -> None:
    device_of = {"default": "cpu", "eager": "cuda", "aoti": "cuda"}
    declined = dict.fromkeys(("eager", "aoti"), "this build has no CUDA")
    entry = Entry("torch", "", True, "2.13", ("cpu",), tuple(device_of), device_of=device_of, declined=declined)
    table, _, below = printed(lambda console: print_backends([entry], console)).partition("torch: ")
    assert "cuda" not in table
    assert below.strip() == "not on cuda as eager, aoti: this build has no CUDA"


def test_explanations() -> None:
    failed = "build: the compiler said a long story about a layout that it does not know"
    offers = (Offer("epilogue", "default", OPERATORS, 1234.5678), Offer("", "bf16", OPERATORS, None, failed))
    answer = BackendAnswer("openvino", offers, (Refusal("branch", OPERATORS, "no"),), cut=False)
    text = printed(lambda console: print_explanation(Explanation("n", "Conv", (), (answer,)), console))
    table = text.partition("openvino/bf16 on")[0]
    assert fits(table)
    for name in ("openvino/bf16", "epilogue", "LayerNormalization", "1234.5678"):
        assert name in table
    assert f"openvino/bf16 on LayerNormalization Conv: {failed}" in text


def test_what_says_little_about_a_node_is_printed_only_on_demand() -> None:
    unmeasured = [Offer(f"p{k}", "default", OPERATORS[:k], None, NOT_MEASURED) for k in (1, 2)]
    refusals = (Refusal("", ("Conv",), "int8 needs data"), Refusal("", (), "variant f16 takes no part: slow"))
    found = Explanation("n", "Conv", (), (BackendAnswer("ncnn", (OFFER, *unmeasured), refusals, cut=False),))
    short = printed(lambda console: print_explanation(found, console))
    assert "Backends that can run it" in short
    assert "ncnn: cannot run Conv: int8 needs data" in short
    assert "ncnn: variant f16 takes no part: slow" in short
    assert "and 1 larger matches that were not measured: see --all" in short
    assert "p2" not in short
    whole = printed(lambda console: print_explanation(found, console, everything=True))
    assert "p2" in whole
    assert "--all" not in whole


EVIL = "conv\x1b]0;owned\x07\r\n\u202e[red]fake[/red][/]"
SHOWN = r"conv\x1b]0;owned\x07\r\n\u202e[red]fake[/red][/]"


def test_names_out_of_a_file_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    result = make_result()
    placement = [replace(region, nodes=(EVIL,)) for region in result.placement]
    spoilt = replace(result, model={**result.model, "name": EVIL}, placement=placement)
    text = printed(lambda console: print_result(spoilt, console))
    assert SHOWN in text.replace("\n", "").replace(" ", "")
    assert not set(text) & set(EVIL[4:5] + "\x07\r\u202e")
    LineReporter(clock=lambda: 0.0).log(f"the model is {EVIL}")
    assert capsys.readouterr().err == f"[   0 s] the model is {SHOWN}\n"


@pytest.mark.parametrize(("measured", "heading"), [(False, "expected times"), (True, "times of the whole model")])
def test_expected_times_of_parts_are_told_from_measured_ones(measured: bool, heading: str) -> None:
    found = RegionExplanation(0, "tvm", "default", 1.0, (("n", "Conv"),), ANSWERS, measured=measured)
    text = printed(lambda console: print_region(found, console))
    assert f"as one piece; {heading}" in " ".join(text.split())
    answer = BackendAnswer("ncnn", (OFFER,), (), cut=False)
    node = printed(lambda console: print_explanation(Explanation("n", "Conv", (), (answer,)), console))
    assert "expected times" in node


def test_of_a_large_region_the_first_nodes_are_listed_and_the_others_counted() -> None:
    nodes = tuple((f"n{k}", "Conv") for k in range(23))
    text = printed(lambda console: print_region(RegionExplanation(0, "tvm", "default", 1.0, nodes, ANSWERS), console))
    assert "n19: Conv" in text
    assert "n20" not in text
    assert "and 3 more nodes: see --json" in text
