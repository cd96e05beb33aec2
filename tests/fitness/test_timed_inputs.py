"""A whole model is timed on inputs of several shapes, each with its weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from collage_evo.fitness import timing
from collage_evo.fitness.references import read_references, read_timed, write_references
from collage_evo.fitness.timing import SingleSession
from collage_evo.runtime.timing import TimedInputs


class Slept:
    """A session that takes as many seconds as its input says, by a clock of its own."""

    now = fed = 0.0

    def feed(self, feeds: dict[str, np.ndarray]) -> None:
        self.fed = float(feeds["x"][0])
        self.now += 100.0  # feeding is no part of a run

    def execute(self) -> None:
        self.now += self.fed


def test_the_latency_is_the_weighted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Slept()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: session.now)
    single = SingleSession(cast(Any, session))
    single.feed(TimedInputs(tuple({"x": np.array([seconds])} for seconds in (1.0, 4.0)), (0.75, 0.25)))
    assert single.execute() == pytest.approx(1750.0), "ms"


@pytest.mark.parametrize("weights", [(1.0,), (0.25, 0.75)])
def test_weights_are_of_the_first_references(tmp_path: Path, weights: tuple[float, ...]) -> None:
    pairs = [({"x": np.arange(n)}, {"y": np.arange(n)}) for n in (3, 1, 2)]
    write_references(tmp_path / "r.npz", pairs, weights)
    timed = read_timed(tmp_path / "r.npz")
    assert timed.weights == weights
    assert [one["x"].size for one in timed.feeds] == [3, 1][: len(weights)]
    assert len(read_references(tmp_path / "r.npz")) == 3
