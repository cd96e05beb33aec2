"""A device for backends: what is enqueued on it runs when somebody waits."""

from collections.abc import Iterator

import pytest

from collage_evo.devices.device import Device
from collage_evo.devices.open import open_device
from tests.support.cuda import FakeCuda


@pytest.fixture
def device(fake_cuda: FakeCuda) -> Iterator[Device]:
    with fake_cuda.used(cuda_lazy=1):
        yield open_device("cuda")
