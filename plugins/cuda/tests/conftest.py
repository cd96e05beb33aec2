"""Fixtures of the plug-in's tests: a CUDA driver without a GPU, and the GPU's own where there is one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_evo.backends import registry
from collage_evo.errors import UnavailableError
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.open import open_device
from stand_in import FakeCuda, compile_fake
from stand_in.backend import FakeGpuBackend, FaultyGpuBackend

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """Processes that a test starts import the stand-ins of this folder, and those of tests/support."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(HERE), str(HERE.parents[2]))))
        yield


@pytest.fixture(scope="session")
def fake_cuda(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """A CUDA driver without a GPU, for those who say where it is used: ``with fake_cuda.used(): ...``"""
    return compile_fake(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def device(fake_cuda: FakeCuda) -> Iterator[Device]:
    """What is enqueued on it runs when somebody waits, so that a forgotten wait is seen."""
    with fake_cuda.used(cuda_lazy=1):
        yield open_device("cuda")


@pytest.fixture(params=["fake", "real"])
def any_device(request: pytest.FixtureRequest, fake_cuda: FakeCuda) -> Iterator[Device]:
    """The same, and after it the GPU's: what holds of the one has to hold of the other."""
    if request.param == "fake":
        with fake_cuda.used(cuda_lazy=1):
            yield open_device("cuda")
        return
    try:
        yield open_device("cuda")
    except UnavailableError as missing:
        pytest.skip(str(missing))


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
