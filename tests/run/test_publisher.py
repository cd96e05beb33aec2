"""A run publishes each answer that is right and faster than the one before, until its final comparison."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from collage_evo.answer.baselines import Baseline
from collage_evo.answer.delivery import ANSWER, Delivery
from collage_evo.answer.so_far import Evidence, SoFar, read_so_far
from collage_evo.fitness.jobs import Written
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.run.publisher import Publisher
from collage_evo.runtime.artifact import load_artifact, write_artifact
from collage_evo.runtime.manifest import Profile
from collage_evo.runtime.program import Program
from collage_evo.runtime.signature import signature_of
from tests.runtime.helpers import TARGET, sums, whole
from tests.support.machine import FakeMachine, setting_of
from tests.support.measured import LIMIT, two_nodes
from tests.support.runs import fake_run
from tests.support.typed import not_none

Waiting = dict[str, tuple[Path, Future[Written | Failure]]]


class Place:
    """A run directory in which :class:`Publisher` publishes; artifacts are written when the test says so."""

    def __init__(self, directory: Path) -> None:
        model = sums(2)
        self.program: Program = whole(model, directory / "cache")
        self.delivery = Delivery(directory, TARGET, signature_of(model), None)
        self.directory, self.lines = directory, list[str]()
        run = fake_run(directory, FakeMachine(lambda job: None, setting_of(limits=LIMIT)), self.lines)
        self.best = Publisher(run, self.delivery)
        self.waiting: Waiting = {}

    def write(self, placement: Placement, artifact: Path) -> Future[Written | Failure]:
        future: Future[Written | Failure] = Future()
        self.waiting[placement.key] = artifact, future
        return future

    def finish(self, key: str, failure: Failure | None = None) -> None:
        artifact, future = self.waiting.pop(key)
        if failure is None:
            write_artifact(artifact, [Profile(self.program, {"key": key})], TARGET)
        future.set_result(failure or Written())

    def baseline(self, name: str, ms: float, error: float = 0.0, exact: bool = True) -> Baseline:
        artifact = self.directory / f"{name}.collage"
        write_artifact(artifact, [Profile(self.program)], TARGET)
        return Baseline(name, name, "default" if exact else "bf16", artifact, Outcome(ms, error=error), "", exact)

    @property
    def known(self) -> SoFar | None:
        return read_so_far(self.delivery.best)


def test_each_faster_library_within_the_budget_replaces_the_one_before(tmp_path: Path) -> None:
    place = Place(tmp_path)
    first, fast = place.baseline("onnxruntime", 20.0), place.baseline("openvino", 10.0, 5e-3, exact=False)
    place.best.offer_baselines([first])
    assert place.known == SoFar(20.0, 0.0, Evidence.BASELINE, "ONNX Runtime", 20.0)
    place.best.offer_baselines([first, place.baseline("ncnn", 19.9)])
    assert len(place.lines) == 1, "half a percent is not worth a copy"
    place.best.offer_baselines([first, place.baseline("tvm", 1.0, 0.5, exact=False)])
    assert len(place.lines) == 1, "it is over the budget"
    place.best.offer_baselines([first, fast])
    assert place.known == SoFar(10.0, 5e-3, Evidence.BASELINE, "ONNX Runtime", 20.0)
    assert "2.00 times as fast as ONNX Runtime" in place.lines[-1]
    with load_artifact(place.delivery.best) as session:
        (out,) = session.run(None, {"x": np.ones((2, 4), np.float32), "k": np.array([3], np.int64)})
    assert (out == 3.0).all()


def test_a_placement_of_the_search_is_published_unless_a_faster_one_was_meanwhile(tmp_path: Path) -> None:
    place, (tried, placements) = Place(tmp_path), two_nodes()
    offer = place.best.offers(cast(Any, place), tried.space)
    outcomes = {name: tried.evaluated[placements[name].key].outcome for name in placements}
    place.best.offer_baselines([place.baseline("onnxruntime", 20.0)])
    for name in ("exact", "low", "last", "first"):  # no gain, over the budget, 15 ms, 14 ms
        offer(placements[name], outcomes[name])
    last, first = (placements[name].key for name in ("last", "first"))
    assert [*place.waiting] == [last, first]
    place.finish(first)
    assert place.known == SoFar(14.0, 9e-3, Evidence.SEARCH, "ONNX Runtime", 20.0)
    place.finish(last)
    assert not_none(place.known).latency_ms == 14.0
    assert not list((tmp_path / "work").glob("*.collage"))


def test_a_search_ends_after_what_it_found_is_published(tmp_path: Path) -> None:
    place, (tried, placements) = Place(tmp_path), two_nodes()
    place.best.finish()
    place.best.offers(cast(Any, place), tried.space)(placements["first"], Outcome(5.0, error=1e-3))
    writing = threading.Timer(0.2, place.finish, [placements["first"].key])
    writing.start()
    place.best.finish()
    assert not_none(place.known).latency_ms == 5.0
    writing.join()


@pytest.mark.parametrize("outcome", [Outcome(5.0, error=1e-3, rough=True), Outcome(5.0, error=1e-3, contended=True)])
def test_what_was_timed_or_judged_roughly_is_not_published(tmp_path: Path, outcome: Outcome) -> None:
    place, (tried, placements) = Place(tmp_path), two_nodes()
    place.best.offers(cast(Any, place), tried.space)(placements["first"], outcome)
    assert not place.waiting


def test_a_placement_that_cannot_be_written_leaves_the_answer(tmp_path: Path) -> None:
    place, (tried, placements) = Place(tmp_path), two_nodes()
    place.best.offer_baselines([place.baseline("onnxruntime", 20.0)])
    place.best.offers(cast(Any, place), tried.space)(placements["first"], Outcome(5.0, error=1e-3))
    place.finish(placements["first"].key, Failure(Fault.CRASH, "exit code 1"))
    assert not_none(place.known).latency_ms == 20.0


def test_the_winner_of_a_final_comparison_stays(tmp_path: Path) -> None:
    before = Place(tmp_path)
    before.delivery.put(before.baseline("onnxruntime", 20.0).artifact, info={ANSWER: "onnxruntime"})
    place = Place(tmp_path)
    place.best.offer_baselines([place.baseline("openvino", 1.0)])
    assert place.known is None
    assert place.delivery.answered == "onnxruntime"


def test_a_run_that_goes_on_replaces_what_it_had(tmp_path: Path) -> None:
    Place(tmp_path).best.offer_baselines([Place(tmp_path).baseline("onnxruntime", 20.0)])
    place = Place(tmp_path)
    place.best.offer_baselines([place.baseline("onnxruntime", 25.0)])
    assert not_none(place.known).latency_ms == 20.0
    place.best.offer_baselines([place.baseline("openvino", 10.0)])
    assert not_none(place.known).latency_ms == 10.0
