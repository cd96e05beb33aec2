"""Explanations on a terminal: tables that fit, reasons in full, and of much the first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rich.console import Console

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
from tests.support.terminal import fits, printed

OPERATORS = ("LayerNormalization", "Conv")
OFFER = Offer("", "tuned-0123456789ab", OPERATORS, 1234.5678)
FAILED = "build: the compiler said a long story about a layout that it does not know"
FAILING = (Offer("epilogue", "default", OPERATORS, 1234.5678), Offer("", "bf16", OPERATORS, None, FAILED))
UNMEASURED = tuple(Offer(f"p{k}", "default", OPERATORS[:k], None, NOT_MEASURED) for k in (1, 2))
REFUSALS = (Refusal("", ("Conv",), "int8 needs data"), Refusal("", (), "variant f16 takes no part: slow"))
REGIONS = (RegionAnswer("onnxruntime", (OFFER,), (), "", 1234.9876), RegionAnswer("tvm", (OFFER,), (), "", None))
LANES = (("Conv, Relu", "Concat"), ("Conv",))
NAMES = ("tvm/tuned-0123456789ab", "LayerNormalization", "1234.5678")


def node(*offers: Offer, refusals: tuple[Refusal, ...] = ()) -> Explanation:
    return Explanation("n", "Conv", (), (BackendAnswer("openvino", offers, refusals, cut=False),))


def region(count: int = 1, lanes: tuple[tuple[str, ...], ...] = (), measured: bool = False) -> RegionExplanation:
    nodes = tuple((f"n{k}", "Conv") for k in range(count))
    return RegionExplanation(0, "tvm", "default", 1.0, nodes, REGIONS, lanes, measured=measured)


@pytest.mark.parametrize(
    ("show", "there", "absent"),
    [
        (lambda console: print_explanation(node(*FAILING, refusals=(Refusal("branch", OPERATORS, "no"),)), console),
         ["openvino/bf16", "epilogue", "LayerNormalization", "1234.5678", "expected times",
          f"openvino/bf16 on LayerNormalization Conv: {FAILED}"], []),
        (lambda console: print_explanation(node(OFFER, *UNMEASURED, refusals=REFUSALS), console),
         ["Backends that can run it", "openvino: cannot run Conv: int8 needs data",
          "openvino: variant f16 takes no part: slow", "and 1 larger matches that were not measured: see --all"],
         ["p2"]),
        (lambda console: print_explanation(node(OFFER, *UNMEASURED, refusals=REFUSALS), console, everything=True),
         ["p2"], ["--all"]),
        (lambda console: print_region(region(), console), ["onnxruntime", "1234.9876", *NAMES, "expected times"], []),
        (lambda console: print_region(region(measured=True), console), ["times of the whole model"], ["expected t"]),
        (lambda console: print_region(region(23), console), ["  n19: Conv\n", "  and 3 more nodes: see --json\n"],
         ["n20"]),
        (lambda console: print_region(region(lanes=LANES), console), ["lane 0: Conv, Relu; Concat", "lane 1: Conv\n"],
         []),
    ],
    ids=["failed", "in short", "everything", "region", "measured", "many nodes", "lanes"],
)  # fmt: skip
def test_explanations(show: Callable[[Console], None], there: list[str], absent: list[str]) -> None:
    text = printed(show)
    assert fits(text.partition(" on LayerNormalization")[0])
    assert [words for words in there if words not in text] == []
    assert [words for words in absent if words in text] == []
