"""Regions on lanes keep every promise of the contract."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import pytest

from collage_evo.testing.conformance import Effort
from collage_evo.testing.finding import Report
from collage_evo.testing.pytest_backend import BackendConformance
from collage_evo_lanes import LanesBackend
from collage_evo_lanes.backend import ENGINES
from plugins.lanes.tests.test_lanes_described import branches
from tests.support.branchy import inception, towers


@pytest.mark.slow
class TestLanes(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> LanesBackend:
        return LanesBackend()

    @pytest.fixture(scope="class")
    @classmethod
    def models(cls) -> Mapping[str, onnx.ModelProto]:
        return {"branches": branches(), "inception": inception(1), "towers": towers()}

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        return Effort(examples=1, per_pattern=1)

    def test_every_engine_ran_pieces(self, report: Report) -> None:
        assert report.count("build", "passed") >= 3 * len({engine.backend for engine in ENGINES})
