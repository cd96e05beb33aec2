"""Pruning rules: each is complete and decides somewhere."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import collage_evo
from collage_evo import pruning
from collage_evo.config import load_config
from collage_evo.pruning import RULES, Rule

PACKAGE = Path(collage_evo.__file__).parent
CODE = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name not in ("pruning.py", "config.py")}
UNNUMBERED = {"unreachable_precision", "earlier_run", "batch_dependent"}
"""Rules without a number: they compare measurements, or decide by how an engine computes."""


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_has_one_number_with_a_basis_and_decides_somewhere(rule: Rule) -> None:
    constant = rule.name.upper()
    assert getattr(pruning, constant) is rule
    assert (math.isnan(rule.number), bool(rule.key)) in {(True, True), (False, False)} or rule.name in UNNUMBERED
    assert ("{}" in rule.condition) == (rule.name not in UNNUMBERED)
    assert re.fullmatch(r"[A-Z].*\.", rule.basis)
    if rule.key:
        section, key = rule.key.split(".")
        assert float(getattr(getattr(load_config("builtin:bert"), section), key)) > 0
        read = rf"\.{key}\b"
    else:
        read = rf"\b{constant}\.(number|name)\b"
    assert any(re.search(read, text) for path, text in CODE.items() if path.name != "policy.py")


def test_a_rule_is_told_with_the_number_of_a_run() -> None:
    rule = Rule("slow", "given up", "what takes {} times as long", number=2.0)
    assert rule.line(rule.number) == "given up: what takes 2 times as long"
