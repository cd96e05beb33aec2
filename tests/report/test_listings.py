"""Tables of backends, of checks and of trials fit a terminal, with each name in one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from collage_evo.backends.registry import Entry
from collage_evo.report.listings import print_backends, print_conformance
from collage_evo.report.progress import LineReporter
from collage_evo.report.study import TrialRow, Trials
from collage_evo.report.terminal import print_result
from collage_evo.testing.finding import CHECKS, Finding, Report
from tests.support.results import result
from tests.support.terminal import fits, printed

VARIANTS = ("default", "nchw", "sgemm", "eager")
DEVICES = dict.fromkeys(VARIANTS, "cpu") | {"eager": "cuda"}
ENTRY = Entry("onnxruntime", "", True, "0.27.0.post1 schedules 2", ("cpu", "cuda"), VARIANTS, device_of=DEVICES)
FINDINGS = tuple(Finding(check, "case", "passed") for check in CHECKS for _ in range(1000))
KEYS = ("search.ga.population", "search.ga.explore", "search.ga.tournament", "search.ga.mutation_rate")
TRIALS = Trials("study", (TrialRow(12, "complete", 1.2345, dict.fromkeys(KEYS, 0.123456)),))


@pytest.mark.parametrize(
    ("show", "names"),
    [
        (lambda console: print_backends([ENTRY], console), ("onnxruntime", "cuda", *VARIANTS)),
        (lambda console: print_conformance(Report("openvino", "2026.4.1", FINDINGS, {}), console),
         (*CHECKS, "passed", "declined", "failed")),
        (lambda console: TRIALS.print(console, "latency / best seed's"), [f"{key}=0.1235" for key in KEYS]),
    ],
    ids=["backends", "conformance", "trials"],
)  # fmt: skip
def test_a_table_fits_with_each_name_in_one_piece(show: Callable[[Console], object], names: Sequence[str]) -> None:
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


EVIL = "conv\x1b]0;owned\x07\r\n\u202e[red]fake[/red][/]"
SHOWN = r"conv\x1b]0;owned\x07\r\n\u202e[red]fake[/red][/]"


def test_names_of_a_file_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    placement = [replace(region, nodes=(EVIL,)) for region in result().placement]
    spoilt = replace(result(), model={**result().model, "name": EVIL}, placement=placement)
    text = printed(lambda console: print_result(spoilt, console))
    assert SHOWN in text.replace("\n", "").replace(" ", "")
    assert not set(text) & set(EVIL[4:5] + "\x07\r\u202e")
    LineReporter(clock=lambda: 0.0).log(f"the model is {EVIL}")
    assert capsys.readouterr().err == f"[   0 s] the model is {SHOWN}\n"
