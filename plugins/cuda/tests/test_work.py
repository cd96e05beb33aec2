"""Work of a device: copies in their order, waits, times, threads, and the device's own errors."""

from threading import Thread

import numpy as np
import pytest

from collage_evo.errors import CollageError
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray
from collage_evo_cuda.open import open_device
from stand_in import FakeCuda, HostFunction, host_view, values

A = np.arange(6, dtype=np.float32).reshape(2, 3)


def arrays(device: Device, number: int) -> list[DeviceArray]:
    memory = device.arena(256 * number)
    return [memory(256 * k, A.shape, "float32") for k in range(number)]


def test_a_copy_there_and_back_is_there_after_a_wait_and_not_before(device: Device) -> None:
    (array,) = arrays(device, 1)
    back = np.zeros_like(A)
    device.copy_in(array, A)
    device.copy_out(back, array)
    assert not back.any()
    device.synchronise()
    assert (back == A).all()


def test_work_runs_in_the_order_in_which_it_was_enqueued(device: Device) -> None:
    first, second = arrays(device, 2)
    back, again = np.zeros_like(A), np.zeros_like(A)
    device.copy_in(first, A)
    device.copy(second, first)
    double = HostFunction(lambda: np.multiply(host_view(first), 2, out=host_view(first)))
    double.enqueue(device.stream)
    device.copy_out(back, second)
    device.copy_out(again, first)
    device.synchronise()
    assert (back == A).all()
    assert (again == 2 * A).all()


def test_copies_of_other_sizes_and_of_strided_arrays_are_refused(device: Device) -> None:
    (array,) = arrays(device, 1)
    with pytest.raises(ValueError, match="24 bytes of the device are no copy of these 12 of the host"):
        device.copy_in(array, A[:1])
    with pytest.raises(ValueError, match="no copy"):
        device.copy_out(np.zeros((3, 2), np.float32).T, array)
    with pytest.raises(ValueError, match="a copy of 24 bytes into 8"):
        device.copy(device.arena(8)(0, (2,), "float32"), array)


def test_copies_there_on_and_back_are_those_of_any_driver(any_device: Device) -> None:
    (first, second), twice = arrays(any_device, 2), 2 * A
    any_device.copy_in(first, A)
    any_device.copy(second, first)
    any_device.copy_in(first, twice)
    any_device.synchronise()
    assert (values(any_device, second) == A).all()
    assert (values(any_device, first) == twice).all()


def test_whichever_thread_calls_has_the_device(any_device: Device) -> None:
    device = any_device
    (array,) = arrays(device, 1)
    back, failed = np.zeros_like(A), []

    def work() -> None:
        try:
            device.copy_in(array, A)
            device.copy_out(back, array)
            device.synchronise()
        except CollageError as error:
            failed.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert (failed, back.tolist()) == ([], A.tolist())


def test_a_time_is_taken_by_events_around_the_call_and_after_it_ran(device: Device, fake_cuda: FakeCuda) -> None:
    (array,) = arrays(device, 1)
    back = np.zeros_like(A)

    def call() -> None:
        device.copy_in(array, A)
        device.copy_out(back, array)

    before = len(fake_cuda.trace())
    assert device.time_ms(call) >= 0
    assert (back == A).all()
    assert [made.name for made in fake_cuda.trace()[before:]] == [
        "cuEventRecord",
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuEventElapsedTime",
    ]


def test_flushing_writes_as_many_bytes_into_memory_of_its_own(device: Device, fake_cuda: FakeCuda) -> None:
    (array,) = arrays(device, 1)
    device.copy_in(array, A)
    before = len(fake_cuda.trace())
    for nbytes in (0, 1000, 500, 2000):
        device.flush(nbytes)
    device.synchronise()
    assert [made.nbytes for made in fake_cuda.trace()[before:] if made.name == "cuMemsetD8Async"] == [1000, 500, 2000]
    assert fake_cuda.live_bytes == 256 + 2000
    assert (np.from_dlpack(array) == A).all()


def test_an_error_of_the_device_is_told_by_whoever_waits_and_stays(device: Device, fake_cuda: FakeCuda) -> None:
    (array,), gone = arrays(device, 1), arrays(device, 1)
    replay = device.capture(lambda: device.copy(array, gone[0]))
    gone.clear()
    assert fake_cuda.live_bytes == 256
    replay()
    for _ in range(2):
        with pytest.raises(CollageError, match=r"^CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"):
            device.synchronise()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_after_an_error_of_the_device_memory_is_let_go_of_in_silence(device: Device) -> None:
    held, gone = arrays(device, 1), arrays(device, 1)
    replay = device.capture(lambda: device.copy(held[0], gone[0]))
    gone.clear()
    replay()
    with pytest.raises(CollageError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.synchronise()
    thread = Thread(target=held.clear)
    thread.start()
    thread.join()
    assert not held


def test_any_driver_tells_times_of_what_was_written(any_device: Device) -> None:
    assert any_device.time_ms(lambda: any_device.flush(2**20)) >= 0


def test_a_closed_device_says_so_and_another_is_opened(any_device: Device) -> None:
    device = any_device
    assert open_device("cuda") is device
    device.close()
    with pytest.raises(CollageError, match=f"^{device.name}: the device was closed$"):
        device.synchronise()
    again = open_device("cuda")
    assert again is not device
    again.synchronise()
