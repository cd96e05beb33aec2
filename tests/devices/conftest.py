"""The devices of these tests: one that every process has in tests, and the GPU where there is one."""

from collections.abc import Iterator

import numpy as np
import pytest

from collage_evo.devices.device import Device, DeviceArray
from collage_evo.devices.open import open_device
from collage_evo.errors import UnavailableError
from tests.support.cuda import FakeCuda


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


def values(device: Device, array: DeviceArray) -> np.ndarray:
    """What an array holds, wherever it lies."""
    back = np.empty(array.shape, array.dtype)
    device.copy_out(back, array)
    device.synchronise()
    return back
