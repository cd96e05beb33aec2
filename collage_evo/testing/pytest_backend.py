"""Conformance suite as a pytest class: one test for each check of the backend that its user supplies."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import pytest

from collage_evo.backends.base import Backend
from collage_evo.testing.conformance import Effort, check_backend
from collage_evo.testing.finding import CHECKS, Report

__all__ = ["BackendConformance"]


def __dir__() -> list[str]:
    return __all__


class BackendConformance:
    """Subclass it, name the subclass ``Test...`` and define the fixture ``backend`` with the scope "class".

    The fixtures ``models`` (cases of your own) and ``effort`` may be overridden in the same way.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Backend:
        """The backend to check."""
        # Without this pytest would report only that there is no such fixture.
        raise NotImplementedError("define the fixture 'backend' in your subclass of BackendConformance")

    @pytest.fixture(scope="class")
    @classmethod
    def models(cls) -> Mapping[str, onnx.ModelProto]:
        """Further cases by name; every pattern that the built-in ones do not contain needs one."""
        return {}

    @pytest.fixture(scope="class")
    @classmethod
    def effort(cls) -> Effort:
        """Effort of the checks."""
        return Effort()

    @pytest.fixture(scope="class")
    @classmethod
    def report(cls, backend: Backend, models: Mapping[str, onnx.ModelProto], effort: Effort) -> Report:
        """Result of one run of the suite."""
        return check_backend(backend, models, effort)

    @pytest.mark.parametrize("check", CHECKS)
    def test_conforms(self, report: Report, check: str) -> None:
        """No case fails the check."""
        failures = [f"{finding.case}: {finding.reason}" for finding in report.failures if finding.check == check]
        assert not failures, f"{CHECKS[check]}\n" + "\n".join(failures)
