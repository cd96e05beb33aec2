"""The backend keeps every promise of the contract."""

import pytest
from collage_evo_numpy import NumpyBackend

from collage_evo.testing.pytest_backend import BackendConformance


class TestNumpy(BackendConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> NumpyBackend:
        return NumpyBackend()
