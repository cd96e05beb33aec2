"""Times of other phases are put on the scale of the final race, and a machine that changed meanwhile is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.race import Race
from collage_evo.genome.outcome import Outcome
from collage_evo.patterns.match import Placement
from collage_evo.run.front import CHANGED, Raced, Scales, front_points
from tests.support.measured import EXACT, LIMIT, LOW, two_nodes

BASELINES = tuple(
    Baseline(name, "openvino", variant, Path(name), Outcome(ms, error=1e-6), exact=variant == EXACT)
    for name, variant, ms in (("openvino", EXACT, 20.0), ("openvino/bf16", LOW, 10.0))
)


def raced(placements: dict[str, Placement], **times_ms: float) -> Raced:
    """A final of ``last``, which the search timed at 15 ms, and of OpenVINO, which took 20 ms at first."""
    names = {"last": "placement-0", "baselines": "openvino"}
    race = Race({names[name]: (((ms,),),) for name, ms in times_ms.items()}, {})
    verdict = Verdict("placement-0", "openvino", ITSELF, "placement-0", ITSELF, race)
    return Raced(verdict, {"placement-0": placements["last"].key})


def test_who_did_not_race_compares_with_who_did_as_it_compared_when_both_were_timed() -> None:
    tried, placements = two_nodes()
    final = raced(placements, last=30.0, baselines=22.0)
    scales = Scales.of(tried, BASELINES, final)
    assert (scales.search, scales.baselines) == (2.0, pytest.approx(1.1))
    points = front_points(tried, BASELINES, final, LIMIT, scales)
    found = {point.key or point.single: point.latency_ms for point in points}
    expected = {placements["last"].key: 30.0, placements["first"].key: 28.0, placements["exact"].key: 40.0}
    expected |= {"openvino": 22.0, "openvino/bf16": 11.0, placements["low"].key: 18.0}
    assert found == pytest.approx(expected)
    (answer,) = [point for point in points if point.answer]
    assert answer.latency_ms == 30.0


def test_without_a_placement_in_the_race_the_libraries_tell_the_scale_and_without_any_nothing_does() -> None:
    tried, placements = two_nodes()
    only = raced(placements, baselines=24.0)
    assert Scales.of(tried, BASELINES, only).search == pytest.approx(1.2)
    assert Scales.of(None, BASELINES, only).search == pytest.approx(1.2)
    assert Scales.of(None, (), only) == Scales()


def test_a_machine_that_changed_is_named_with_the_thing_that_shows_it() -> None:
    tried, placements = two_nodes()

    def told(**times_ms: float) -> str:
        return Scales.of(tried, BASELINES, raced(placements, **times_ms)).changed

    assert told(last=15.0 * CHANGED, baselines=20.0 / CHANGED) == ""
    slower = "the answer took 15.0 ms in the search and 21.0 ms in the final comparison"
    assert told(last=21.0, baselines=20.0) == f"the machine changed during the run: {slower}"
    assert "OpenVINO in float32 took 20.0 ms at first and 10.0 ms in the final comparison" in told(
        last=21.0, baselines=10.0
    )
