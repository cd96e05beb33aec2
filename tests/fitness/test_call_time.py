"""What a call of a session takes beyond its pieces."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_evo.fitness.timing import time_call_ms
from collage_evo.runtime.session import Session
from tests.runtime.helpers import TARGET, sums, whole

FEEDS = {"x": np.ones((2, 4), np.float32), "k": np.array([3])}


@pytest.mark.parametrize(
    ("run_s", "execute_s", "adds_ms"),
    [(0.007, 0.002, 5.0), (0.002, 0.002, 0.0), (0.001, 0.002, 0.0), (0.7, 0.6, None)],
)
def test_a_call_is_timed_in_turns_with_the_execution_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_s: float, execute_s: float, adds_ms: float | None
) -> None:
    now, calls = [0.0], list[str]()

    def taking(seconds: float, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            calls.append(call.__name__)
            now[0] += seconds
            return call(*arguments)

        return timed

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with Session([whole(sums(2), tmp_path)], TARGET) as session:
        monkeypatch.setattr(session, "run", taking(run_s, session.run))
        monkeypatch.setattr(session, "execute", taking(execute_s, session.execute))
        adds = time_call_ms(session, FEEDS, seconds=0.05)
        assert adds == (None if adds_ms is None else pytest.approx(adds_ms))
        np.testing.assert_array_equal(session.read("y"), 3 * FEEDS["x"])
    assert calls == ["run", "execute"] * (len(calls) // 2)
    assert len(calls) >= 6 or run_s > 0.5  # a model that takes long runs twice


def test_differences_that_scatter_are_no_time_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, took = [0.0], iter([0.093, 0.080, 0.079, 0.085, 0.090, 0.081])

    def taking(*_: Any) -> None:
        now[0] += next(took)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with Session([whole(sums(2), tmp_path)], TARGET) as session:
        monkeypatch.setattr(session, "run", taking)
        monkeypatch.setattr(session, "execute", taking)
        assert time_call_ms(session, FEEDS, seconds=0.05) == 0.0
