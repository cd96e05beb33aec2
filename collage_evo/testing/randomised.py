"""Random cases by hypothesis, with the smallest model of each failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import onnx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Flaky

from collage_evo.testing.finding import Finding
from collage_evo.testing.generated import FAMILIES, models

Check = Callable[[str, onnx.ModelProto], Iterable[Finding]]
_SHRINKS = 40
"""Models that are tried to shrink a failing one."""


class _FailedError(Exception):
    """A model has a failed check."""


def random_findings(check: Check, examples: int) -> list[Finding]:
    """Findings on ``examples`` models of every family, the same each time.

    A family ends at its first failure, which is shrunk; only the smallest model's findings are reported.
    """
    return [finding for family in FAMILIES if examples for finding in _family(check, family, examples)]


def _family(check: Check, family: str, examples: int) -> list[Finding]:
    good: list[Finding] = []
    bad: list[Finding] = []
    tries = 0

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(models(FAMILIES[family]))
    def run(model: onnx.ModelProto) -> None:
        nonlocal bad, tries
        if bad:
            tries += 1
            if tries > _SHRINKS:
                return
        findings = list(check(f"{family}: {describe(model)}", model))
        if any(finding.status == "failed" for finding in findings):
            bad = findings
            raise _FailedError
        if not bad:
            good.extend(findings)

    with contextlib.suppress(_FailedError, Flaky, ExceptionGroup):
        run()
    return good + bad


def describe(model: onnx.ModelProto) -> str:
    """One line: input types and the operators with their attributes."""
    types = (value.type.tensor_type for value in model.graph.input)
    shapes = ((one.elem_type, ",".join(str(dim.dim_value) for dim in one.shape.dim)) for one in types)
    inputs = [f"{onnx.TensorProto.DataType.Name(kind).lower()}[{sizes}]" for kind, sizes in shapes]
    value_of = onnx.helper.get_attribute_value
    attributes = ((node.op_type, [f"{a.name}={value_of(a)}" for a in node.attribute]) for node in model.graph.node)
    return " ".join([*inputs, *(f"{op_type}({', '.join(values)})" for op_type, values in attributes)])
