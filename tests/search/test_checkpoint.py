"""A checkpoint survives kills, truncation and corruption, and refuses another model, target or backend set."""

from __future__ import annotations

import json
import logging
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.search.evolution import checkpoint
from collage_evo.search.evolution.checkpoint import LATEST, PREVIOUS, Fingerprint
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.state import SearchState
from tests.support.simulated_target import NonAdditive, SimulatedEvaluator
from tests.support.spaces import make_space, resnet_like

PRINT = Fingerprint("abc", "cpu, 1 thread", ("ncnn 1", "ort 2"), "m0")


@pytest.fixture(scope="module")
def states() -> list[SearchState]:
    space = make_space(resnet_like(1), random.Random(5))
    target = SimulatedEvaluator(space, NonAdditive(layout=0.3, failures=0.1))
    found: list[SearchState] = []
    Evolution(space, target, GaSettings(population=6), Budget(30), lambda: 0.0).run(on_generation=found.append)
    return found


def test_marks_and_failures_are_kept(tmp_path: Path, states: list[SearchState]) -> None:
    failure = Failure(Fault.WRONG_NUMBERS, "relative error 0.5", 0.5)
    outcomes = iter([Outcome(1.5, 1.4, 1.6, 10, contended=True), Outcome.unfit(failure, "here"), Outcome(2.5)])
    some = list(states[0].evaluated.items())[:3]
    evaluated = {key: replace(found, outcome=next(outcomes)) for key, found in some}
    checkpoint.save(tmp_path, replace(states[0], evaluated=evaluated), PRINT)
    loaded = checkpoint.load(tmp_path, PRINT)
    assert loaded.evaluated == evaluated
    assert loaded.contended == (True, False)


def test_round_trip_is_exact(tmp_path: Path, states: list[SearchState]) -> None:
    for state in states:
        checkpoint.save(tmp_path, state, PRINT)
        assert checkpoint.load(tmp_path, PRINT) == state
    assert sorted(os.listdir(tmp_path)) == [LATEST, PREVIOUS]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "remove", "schema"])
def test_falls_back_to_the_one_before_with_a_warning(
    tmp_path: Path, states: list[SearchState], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.save(tmp_path, states[0], PRINT)
    checkpoint.save(tmp_path, states[1], PRINT)
    latest = tmp_path / LATEST
    data = latest.read_bytes()
    match damage:
        case "truncate":
            latest.write_bytes(data[: len(data) // 2])
        case "flip":
            latest.write_bytes(data.replace(b'"generation":2', b'"generation":3', 1))
        case "empty":
            latest.write_bytes(b"")
        case "remove":
            latest.unlink()
        case "schema":
            latest.write_bytes(data.replace(f'"schema": {checkpoint.SCHEMA}'.encode(), b'"schema": 99', 1))
    with caplog.at_level(logging.WARNING):
        assert checkpoint.load(tmp_path, PRINT) == states[0]
    assert "going on from checkpoint.prev.json" in caplog.text
    # Saving again must not lose the good one to the damaged one.
    checkpoint.save(tmp_path, states[2], PRINT)
    assert checkpoint.load(tmp_path, PRINT) == states[2]
    latest.write_bytes(b"{")
    assert checkpoint.load(tmp_path, PRINT) == states[0]


@pytest.mark.parametrize("moment", range(4))
def test_a_kill_while_saving_leaves_a_good_checkpoint(
    tmp_path: Path, states: list[SearchState], moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, states[0], PRINT)
    checkpoint.save(tmp_path, states[1], PRINT)
    calls = 0

    def killed(function):
        def call(*args):
            nonlocal calls
            calls += 1
            if calls > moment:
                raise KeyboardInterrupt
            return function(*args)

        return call

    monkeypatch.setattr(os, "fsync", killed(os.fsync))
    monkeypatch.setattr(os, "replace", killed(os.replace))
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, states[2], PRINT)
    monkeypatch.undo()
    assert checkpoint.load(tmp_path, PRINT) in states[1:3]


def test_nothing_good_is_an_error(tmp_path: Path, states: list[SearchState]) -> None:
    assert not checkpoint.exists(tmp_path)
    with pytest.raises(InputError, match="no usable checkpoint"):
        checkpoint.load(tmp_path, PRINT)
    checkpoint.save(tmp_path, states[0], PRINT)
    (tmp_path / LATEST).write_text(json.dumps({"schema": checkpoint.SCHEMA}))
    with pytest.raises(InputError, match="no usable checkpoint"):
        checkpoint.load(tmp_path, PRINT)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Fingerprint("xyz", PRINT.target, PRINT.backends, "m0"), "model was abc and is now xyz"),
        (Fingerprint("abc", "cpu, 2 threads", PRINT.backends, "m0"), "target was cpu, 1 thread and is now"),
        (Fingerprint("abc", PRINT.target, PRINT.backends, "m0", "throughput"), "objective was latency and is now"),
        (Fingerprint("abc", PRINT.target, ("ort 2",), "m0"), "backends was ncnn 1, ort 2 and is now ort 2"),
        (replace(PRINT, policy="cuts=8"), "policy was the default and is now cuts=8"),
    ],
)
def test_another_search_is_refused_by_name(
    tmp_path: Path, states: list[SearchState], other: Fingerprint, message: str
) -> None:
    checkpoint.save(tmp_path, states[0], PRINT)
    with pytest.raises(InputError, match=message):
        checkpoint.load(tmp_path, other)
