"""No library answers wrongly on models of public bug reports: it is right, declines, or a run's check refuses it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest

from collage_evo.backends.openvino.backend import OpenVinoBackend
from collage_evo.backends.registry import get_backend, register_backend
from collage_evo.errors import CollageError
from collage_evo.genome.failure import Failed
from collage_evo.graph.check.edges import decided, edge_samples
from collage_evo.graph.check.nonfinite import lost, spoiled
from collage_evo.graph.check.scopes import operators
from collage_evo.graph.ir.graph import Graph, Node
from collage_evo.graph.ir.values import plain
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.graph.reference.rounding import Moved
from collage_evo.hardware.held import hold
from collage_evo.hardware.processor import level
from collage_evo.runtime.program import Program
from collage_evo.runtime.session import Session
from tests.backends.pieces import TARGET, compiled
from tests.support.recent_reports import NONFINITE, RECENT
from tests.support.reports import REPORTS, Report

TOLERANCE = 1e-3
ALL = {**REPORTS, **RECENT, **NONFINITE}
CRASHES_IF_HELD = {"layer normalisation by a wider scale"}
"""OpenVINO 2026.4 that ``ONEDNN_MAX_CPU_ISA`` holds to AVX2 executes AVX-512 at the end of normalised rows whose size
is no multiple of 8, and reads what is not its own. With AVX2 alone, or CPUID hidden, it does not."""
TABLE = Path(__file__).parents[2] / "docs" / "backends.md"


def off_by(program: Program, report: Report, feeds: dict[str, np.ndarray]) -> float:
    """How far ``program`` is off on ``feeds``, in units of what it may be off."""
    model = report.model()
    names = [one.name for one in model.graph.output]
    expected = dict(zip(names, plain(reference_outputs(model, feeds)), strict=True))
    with Session([program], TARGET) as session:
        made = plain(session.run(list(expected), feeds))
    allowed = {name: noise.allowed.error for name, noise in Moved(model, 1, None).noise(feeds, expected).items()}
    found = zip(made, expected.items(), strict=True)
    return max(relative_error(got, right).relative / max(TOLERANCE, allowed[name]) for got, (name, right) in found)


def loses_some(program: Program, report: Report) -> bool:
    """Whether a run that keeps NaN and infinity would refuse ``program``."""
    model = report.model()
    for feeds in spoiled(random_inputs(model, seed=1000)).values():
        expected = plain(reference_outputs(model, feeds))
        with Session([program], TARGET) as session:
            if lost(plain(session.run([one.name for one in model.graph.output], feeds)), expected):
                return True
    return False


@pytest.mark.parametrize(("backend", "most"), [("onnxruntime", 0), ("openvino", 30), ("ncnn", 17)])
def test_rules_decline_no_more_than_what_was_seen_wrong(backend: str, most: int) -> None:
    """Else the tests below would pass where all is declined."""
    known_wrong = get_backend(backend).known_wrong
    models = [report.model() for report in ALL.values()]
    assert sum(any(known_wrong(graph, node) for graph, node in operators(model)) for model in models) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *((backend, name) for backend in ("onnxruntime", "openvino", "ncnn") for name in {**REPORTS, **RECENT}),
        *(("tvm", name) for name, report in RECENT.items() if report.source.startswith("tvm")),
    ],
)
def test_a_library_is_right_declines_or_is_refused(backend: str, name: str, tmp_path: Path) -> None:
    report = ALL[name]
    if backend == "openvino" and name in CRASHES_IF_HELD and level() and not hold():
        pytest.skip("OpenVINO by its own setting does not keep to this level: it crashes")
    try:
        program = compiled(report.model(), backend, tmp_path)
    except Failed:
        assert backend != "onnxruntime"
        return
    try:
        refused = off_by(program, report, random_inputs(report.model(), seed=1000)) > 1.0
    except (CollageError, RuntimeError):  # it cannot run it
        return
    assert refused or off_by(program, report, dict(report.feeds)) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NONFINITE)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "ncnn"])
def test_a_run_that_keeps_nan_and_infinity_refuses_what_loses_them(backend: str, name: str, tmp_path: Path) -> None:
    report = NONFINITE[name]
    with contextlib.suppress(Failed):
        program = compiled(report.model(), backend, tmp_path)
        assert off_by(program, report, dict(report.feeds)) <= 1.0 or loses_some(program, report)


class Unchecked(OpenVinoBackend):
    """OpenVINO without a rule against any operator."""

    name = "unchecked"

    def known_wrong(self, graph: Graph, node: Node) -> str:
        return ""


@pytest.mark.usefixtures("registry_alone")
@pytest.mark.parametrize("name", ["log of softplus", "erf over x", "sums of int8"])
def test_edge_samples_show_what_random_inputs_do_not(name: str, tmp_path: Path) -> None:
    """The check of a whole library would refuse it without a rule too."""
    register_backend(Unchecked)
    model = ALL[name].model()
    program, feeds = compiled(model, "unchecked", tmp_path), random_inputs(model, seed=1000)
    edges = decided(edge_samples(model, feeds, Reference(model)), lambda: Moved(model, 1, None))
    assert off_by(program, ALL[name], feeds) <= 1.0
    assert max(off_by(program, ALL[name], dict(edge)) for edge, _ in edges) > 1.0


def test_the_table_has_each_recent_report() -> None:
    rows = set(re.findall(r"^\| (\w[\w ]*) \| #(\d+) \|", TABLE.read_text(), re.MULTILINE))
    assert {" #".join(row) for row in rows} == {one.source for one in (*RECENT.values(), *NONFINITE.values())} - {""}
