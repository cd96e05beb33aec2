"""Tests that run beside others: each worker of pytest-xdist is a machine of its own as far as locks go."""

from __future__ import annotations

import os
import shutil
import tempfile

import hypothesis
import pytest

from tests.support.cuda import FakeCuda, compile_fake

# The same examples each time, however long each takes: whether a test passes depends on the code alone.
hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Runs of one machine wait for each other's cores; those of two workers would, and for no test's sake."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return
    own = tempfile.mkdtemp(prefix=f"{worker}-")
    os.environ["TMPDIR"] = tempfile.tempdir = own
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """A CUDA driver without a GPU, for those who say where it is used: ``with fake_cuda.used(): ...``"""
    return compile_fake(tmp_path_factory.mktemp("cuda"))
