"""Fixtures of the tests of the runtime."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_evo.backends import registry
from tests.support.cuda import FakeCuda
from tests.support.cuda.backend import FakeGpuBackend, FaultyGpuBackend


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@pytest.fixture
def fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backends of the fake device are registered."""
    for backend in (FakeGpuBackend, FaultyGpuBackend):
        monkeypatch.setitem(registry._registered, backend.name, backend)


@pytest.fixture
def cuda(fake_cuda: FakeCuda, fake_gpus: None) -> Iterator[FakeCuda]:
    """A fake device that runs what is enqueued only when somebody waits."""
    with fake_cuda.used(cuda_lazy=1):
        yield fake_cuda
