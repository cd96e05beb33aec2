"""Memory of a device: what it holds, how long it lives, what is said when there is no more."""

import ctypes

import numpy as np
import pytest

from collage_evo_cuda import driver
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import OutOfDeviceMemory
from collage_evo_cuda.dlpack import CPU
from collage_evo_cuda.driver import CudaError, Driver
from collage_evo_cuda.open import open_device
from stand_in import FakeCuda, values


def test_arrays_lie_where_they_were_asked_for_and_are_zero(any_device: Device) -> None:
    device, memory = any_device, any_device.arena(1024)
    first, second = memory(0, (2, 3), "float32"), memory(256, (5,), "int64")
    assert second.pointer - first.pointer == 256
    assert (first.shape, second.nbytes, first.stream) == ((2, 3), 40, device.stream)
    assert not values(device, first).any()
    assert not values(device, second).any()


def test_an_array_lies_where_the_driver_says_that_its_memory_is(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device.arena(4)(0, (1,), "float32").place == (CPU, 0)

    def on_the_device(kind: object, which: int, address: int) -> None:
        assert which == 2
        kind._obj.value = 2  # type: ignore[attr-defined]

    monkeypatch.setattr(driver.cuda_driver(), "cuPointerGetAttribute", on_the_device)
    assert device.arena(4)(0, (1,), "float32").__dlpack_device__() == (2, 0)


@pytest.mark.parametrize(("offset", "shape"), [(0, (5, 1)), (8, (3,)), (-4, (1,))])
def test_an_array_beyond_its_memory_is_refused(device: Device, offset: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not lie in 16 bytes"):
        device.arena(16)(offset, shape, "float32")


def test_an_empty_arena_holds_empty_arrays(device: Device) -> None:
    empty, page = device.arena(0)(0, (0, 3), "float32"), device.pinned(0)
    device.copy_in(empty, page.view(np.float32).reshape(0, 3))
    device.copy(empty, empty)
    device.synchronise()
    assert np.from_dlpack(empty).shape == (0, 3)


def test_memory_is_freed_with_the_last_array_in_it(device: Device, fake_cuda: FakeCuda) -> None:
    memory = device.arena(4096)
    first, second = memory(0, (4,), "float32"), memory(256, (4,), "float32")
    del memory, first
    assert fake_cuda.live_bytes == 4096
    view = np.from_dlpack(second)
    del second
    assert fake_cuda.live_bytes == 4096
    del view
    assert fake_cuda.live_bytes == 0


def test_page_locked_memory_is_zero_and_freed_with_the_last_view_of_it(device: Device, fake_cuda: FakeCuda) -> None:
    block = device.pinned(64)
    assert block.dtype == np.uint8
    assert not block.any()
    view = block[8:16].view(np.float32)
    del block
    assert fake_cuda.counts()["cuMemFreeHost"] == 0
    del view
    assert fake_cuda.counts()["cuMemFreeHost"] == 1


def test_nothing_is_freed_inside_a_capture(device: Device, fake_cuda: FakeCuda) -> None:
    held, array = [device.arena(64)], device.arena(16)(0, (4,), "float32")

    def call() -> None:
        device.copy(array, array)
        held.clear()
        assert fake_cuda.live_bytes == 80

    device.capture(call)
    assert fake_cuda.live_bytes == 16


def test_out_of_memory_says_how_much_was_asked_and_how_much_is_free(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_bytes=10_000_000):
        device = open_device("cuda")
        held = device.arena(6_000_000)
        with pytest.raises(OutOfDeviceMemory, match=r"^out of memory on the GPU: 7.0 MB .*, 4.0 MB of 10.0 MB free$"):
            device.arena(7_000_000)
        del held
        device.arena(7_000_000)


def test_more_than_any_device_has_is_refused_and_work_goes_on(any_device: Device) -> None:
    with pytest.raises(OutOfDeviceMemory, match=r"^out of memory on the GPU: 1125899906.8 MB asked for, .* MB free$"):
        any_device.arena(2**50)
    any_device.synchronise()


def test_arrays_outlive_a_device_that_is_closed(device: Device, fake_cuda: FakeCuda) -> None:
    array = device.arena(16)(0, (4,), "float32")
    device.flush(100)
    device.close()
    device.close()
    assert np.from_dlpack(array).tolist() == [0, 0, 0, 0]
    del array
    assert fake_cuda.live_bytes == 0
    assert fake_cuda.counts()["cuStreamDestroy"] == 1


def test_an_error_of_the_driver_has_its_name_its_meaning_and_its_call(device: Device, fake_cuda: FakeCuda) -> None:
    library = Driver(str(fake_cuda.folder / "libcuda.so.1"))
    with pytest.raises(CudaError, match=r"^CUDA_ERROR_INVALID_VALUE: invalid argument \(cuMemFree_v2\)$") as raised:
        library.cuMemFree_v2(ctypes.c_uint64(8))
    assert raised.value.code == 1


def test_memory_is_the_devices_own_whatever_context_a_library_left_to_the_thread(device: Device) -> None:
    device.arena(64)
    driver.cuda_driver().cuCtxSetCurrent(None)
    assert not values(device, device.arena(64)(0, (4,), "float32")).any()
    driver.cuda_driver().cuCtxSetCurrent(None)
    assert not device.pinned(64).any()
