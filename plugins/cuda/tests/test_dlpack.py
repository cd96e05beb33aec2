"""A device's arrays as libraries take them, without a copy."""

from dataclasses import replace

import numpy as np
import pytest

from collage_evo_cuda.cuda import Device
from collage_evo_cuda.dlpack import CUDA
from stand_in import FakeCuda


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int32", "int64", "bool"])
def test_numpy_takes_an_array_as_it_is(device: Device, dtype: str) -> None:
    array = device.arena(256)(64, (2, 3), dtype)
    taken = np.from_dlpack(array)
    assert (taken.dtype, taken.shape, taken.ctypes.data) == (np.dtype(dtype), (2, 3), array.pointer)


def test_torch_takes_an_array_and_writes_into_it(device: Device) -> None:
    torch = pytest.importorskip("torch")
    array = device.arena(64)(0, (2, 3), "float32")
    taken = torch.from_dlpack(array)
    taken += 1.5
    back = np.zeros((2, 3), np.float32)
    device.copy_out(back, array)
    device.synchronise()
    assert taken.data_ptr() == array.pointer
    assert back.tolist() == [[1.5] * 3] * 2


def test_a_reader_keeps_the_memory(device: Device) -> None:
    array = device.arena(64)(0, (4,), "float32")
    taken = np.from_dlpack(array)
    del array
    assert taken.tolist() == [0, 0, 0, 0]


def test_a_capsule_that_nobody_reads_keeps_nothing(device: Device, fake_cuda: FakeCuda) -> None:
    array = device.arena(64)(0, (4,), "float32")
    capsule = array.__dlpack__()
    del array
    assert fake_cuda.live_bytes == 64
    del capsule
    assert fake_cuda.live_bytes == 0


def test_an_exception_that_passes_a_reader_stays_what_it_was(device: Device, fake_cuda: FakeCuda) -> None:
    made = [device.arena(64)(0, (4,), "float32")]
    with pytest.raises(ValueError, match="output array is read-only"):
        np.add(1, 1, out=np.from_dlpack(made.pop()))
    assert fake_cuda.live_bytes == 0


def test_the_record_says_where_the_memory_is(device: Device) -> None:
    array = replace(device.arena(64)(0, (4,), "float32"), place=(CUDA, 3))
    with pytest.raises(Exception, match=r"(?i)device"):
        np.from_dlpack(array)
