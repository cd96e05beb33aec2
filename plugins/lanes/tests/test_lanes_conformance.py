"""Regions on lanes keep every promise of the contract."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import pytest

from collage_evo.testing.conformance import Effort
from collage_evo.testing.finding import Report
from collage_evo.testing.pytest_backend import BackendConformance
from collage_evo_lanes import LanesBackend
from collage_evo_lanes.backend import ENGINES, Way
from plugins.lanes.tests.branchy import inception, towers
from plugins.lanes.tests.test_lanes_described import branches


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
        built = [finding for finding in report.findings if finding.check == "build"]
        passed = [finding.case for finding in built if finding.status == "passed"]
        declined = {finding.case for finding in built if finding.status == "declined"}
        offered = {Way(engine).variant.name for engine in ENGINES}
        offered = {name for name in offered if f"variant {name}" not in declined}
        assert len(offered) >= 4
        assert all(sum(f", {name}]" in case for case in passed) >= 2 for name in offered)
