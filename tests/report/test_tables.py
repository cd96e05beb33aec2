"""Tables of backends, checks, offers and trials fit a terminal of 80 columns, with each name in one piece."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace

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
from collage_evo.report.study import TrialRow, Trials
from collage_evo.report.terminal import print_result
from collage_evo.testing.finding import CHECKS, Finding, Report
from tests.support.results import result

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
    placement = [replace(region, nodes=(EVIL,)) for region in result().placement]
    spoilt = replace(result(), model={**result().model, "name": EVIL}, placement=placement)
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


def test_a_region_has_its_first_nodes_and_its_lanes() -> None:
    nodes = tuple((f"n{k}", "Conv") for k in range(23))
    found = RegionExplanation(0, "tvm", "default", 1.0, nodes, ANSWERS, lanes=(("Conv, Relu", "Concat"), ("Conv",)))
    lines = printed(lambda console: print_region(found, console)).splitlines()
    assert "  n19: Conv" in lines
    assert "  n20: Conv" not in lines
    assert "  and 3 more nodes: see --json" in lines
    assert {"lane 0: Conv, Relu; Concat", "lane 1: Conv"} < {*lines}
