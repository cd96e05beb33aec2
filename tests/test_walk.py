"""The way of a placement to its timed run, and of one call of a session, are those that the documents show."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import onnx
import pytest

import collage_evo
from collage_evo import cli
from collage_evo.errors import InputError
from collage_evo.fitness.builders import Builders
from collage_evo.fitness.evaluate import MeasuredEvaluator, ReferenceArtifact, TimingRule
from collage_evo.fitness.jobs import WholeJob
from collage_evo.fitness.machine import PooledMachine
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.hardware.private import SHARED
from collage_evo.patterns.match import Placement, Region
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import answer_here, make_setting
from tests.support.models import chain

PACKAGE = Path(collage_evo.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
TIMING = TimingSettings(1, 3, 0.001, 5.0)
Step = tuple[str, str]
"""A function and its file."""


def documented(title: str) -> list[Step]:
    """The functions and files in the table under ``title``."""
    section = DOCUMENT.read_text().split(f"\n### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \|", section, re.MULTILINE)


def step(code: CodeType) -> Step | None:
    """None for what is no function of the package, or only an expression in one."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE) or code.co_name.startswith("<"):
        return None
    return code.co_qualname.replace(".<locals>", ""), str(path.relative_to(PACKAGE))


def stack(frame: FrameType | None) -> list[Step]:
    """The functions of the package that wait for ``frame``, the outermost first."""
    found: list[Step] = []
    while frame is not None:
        found += [here] if (here := step(frame.f_code)) is not None else []
        frame = frame.f_back
    return found[::-1]


def call_here(sandbox: Sandbox, job: Any, timeout_s: float) -> Any:
    """What ``Sandbox.call`` does, with the loop of the worker process in this one."""
    return answer_here(sandbox._setting, job)


def test_the_way_of_a_placement_is_short_and_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARED, str(tmp_path))
    monkeypatch.setattr(Sandbox, "call", call_here)
    monkeypatch.setattr(WorkerContext, "expect_any_backend", lambda self: None)
    pool = WorkerPool(PoolConfig(make_setting(tmp_path), (0,), 2**30, 60.0))
    (baseline,) = pool.map([WholeJob("onnxruntime", "default", str(tmp_path / "whole.collage"), TIMING)])
    stacks: list[list[Step]] = []
    execute, caller = Session.execute, threading.get_ident()

    def seen(session: Session) -> None:
        begun = [here for here in stack(sys._current_frames()[caller]) if here[1] == "fitness/evaluate.py"]
        stacks.append([*begun, *stack(sys._getframe())])
        execute(session)

    monkeypatch.setattr(Session, "execute", seen)
    placement = Placement((Region(1, "onnxruntime", "default"), Region(2, "onnxruntime", "default")))
    with Builders(pool) as builders:
        anchor = ReferenceArtifact(tmp_path / "whole.collage", float(np.median(baseline.answer.times_ms)))
        (outcome,) = MeasuredEvaluator(pool, builders, TimingRule(TIMING, 1e9, anchor)).evaluate([placement])
    pool.close()
    assert outcome is not None
    assert outcome.ok, outcome.failure
    timed = [one for one in stacks if ("time_against", "fitness/reference_run.py") in one]
    shortest = min(timed, key=len)  # the other side of each pair is the reference run
    worker_slot = shortest.index(("LocalWorkers._measure", "fitness/worker_slot.py"))
    shortest.insert(worker_slot + 1, ("Sandbox.call", "fitness/sandbox.py"))
    assert [*shortest, ("Session.execute", "runtime/session.py")] == documented("From `evaluate` to the timed run")
    assert len({file for _, file in shortest}) + 1 <= 12


def test_the_way_of_a_run_to_its_first_measurement_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: list[list[Step]] = []

    def measures(machine: PooledMachine, *_: object) -> None:
        stacks.append(stack(sys._getframe(1)))
        raise InputError("enough was seen")

    monkeypatch.setattr(PooledMachine, "exclusive", measures)
    onnx.save(chain(1), tmp_path / "m.onnx")
    with pytest.raises(SystemExit):
        cli.main(["run", str(tmp_path / "m.onnx"), "--out", str(tmp_path / "run")])
    (functions,) = stacks
    assert functions[-1] == ("measure_baselines", "answer/baselines.py")
    assert len(functions) <= 14
    assert len({file for _, file in functions}) <= 10


def test_the_way_of_a_call_of_a_session_is_documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make_setting(tmp_path)
    artifact = tmp_path / "whole.collage"
    monkeypatch.setattr(WorkerContext, "expect_any_backend", lambda self: None)
    call_here(Sandbox(setting, (), 2**30), WholeJob("onnxruntime", "default", str(artifact), TIMING), 60.0)
    called: list[Step] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (here := step(frame.f_code)) is not None and here not in called:
            called.append(here)

    with load_artifact(artifact) as session:
        (name,) = (given.name for given in session.get_inputs())
        feeds = {name: np.zeros(session.get_inputs()[0].shape, np.float32)}
        session.run(None, feeds)  # the first call starts what later ones have
        sys.setprofile(profile)
        try:
            session.run(None, feeds)
        finally:
            sys.setprofile(None)
    assert called == documented("One call of a session")
