"""Captures: what is recorded, what a replay does, and why something cannot be recorded."""

from collections.abc import Callable
from threading import Thread

import numpy as np
import pytest

from collage_evo.devices.device import CaptureError, Device
from tests.support.cuda import FakeCuda, HostFunction, host_view


class Chain:
    """Host to device, doubled there, and back: ``given`` is what it reads, ``got`` where it writes."""

    def __init__(self, device: Device) -> None:
        self.given, self.got = (device.pinned(16).view(np.float32) for _ in range(2))
        self._array, self._device = device.arena(16)(0, (4,), "float32"), device
        values = host_view(self._array)
        self._double = HostFunction(lambda: np.multiply(values, 2, out=values))

    def enqueue(self) -> None:
        self._device.copy_in(self._array, self.given)
        self._double.enqueue(self._device.stream)
        self._device.copy_out(self.got, self._array)


def test_what_is_captured_does_not_run_until_it_is_replayed(device: Device) -> None:
    chain = Chain(device)
    chain.given[:] = 3
    replay = device.capture(chain.enqueue)
    device.synchronise()
    assert not chain.got.any()
    replay()
    device.synchronise()
    assert chain.got.tolist() == [6, 6, 6, 6]


def test_a_replay_sees_what_the_inputs_hold_by_then(device: Device) -> None:
    chain = Chain(device)
    replay = device.capture(chain.enqueue)
    for value in (1, 5):
        chain.given[:] = value
        replay()
        device.synchronise()
        assert chain.got.tolist() == [2 * value] * 4


def test_a_replay_is_one_launch(device: Device, fake_cuda: FakeCuda) -> None:
    chain = Chain(device)
    replay = device.capture(chain.enqueue)
    before = len(fake_cuda.trace())
    replay()
    assert [made.name for made in fake_cuda.trace()[before:]] == ["cuGraphLaunch"]
    device.synchronise()


def test_a_capture_is_let_go_of_with_what_replays_it(device: Device, fake_cuda: FakeCuda) -> None:
    chain = Chain(device)
    replay = device.capture(chain.enqueue)
    replay()
    assert (fake_cuda.counts()["cuGraphDestroy"], fake_cuda.counts()["cuGraphExecDestroy"]) == (1, 0)
    del replay
    assert fake_cuda.counts()["cuGraphExecDestroy"] == 1
    device.synchronise()


def allocating(device: Device) -> None:
    device.arena(64)


def pinning(device: Device) -> None:
    device.pinned(64)


def waiting(device: Device) -> None:
    device.synchronise()


def timing(device: Device) -> None:
    device.time_ms(lambda: None)


def capturing(device: Device) -> None:
    device.capture(lambda: None)


def breaking(device: Device) -> None:
    raise RuntimeError("no kernel for this\nand more of it")


REASONS = {
    allocating: r"^CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: .* \(cuMemAlloc_v2\)$",
    pinning: r"^CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: .* \(cuMemAllocHost_v2\)$",
    waiting: r"^CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: .* \(cuStreamSynchronize\)$",
    timing: r"^CUDA_ERROR_CAPTURED_EVENT: .* \(cuEventSynchronize\)$",
    capturing: "^something is being captured already$",
    breaking: "^no kernel for this$",
}


@pytest.mark.parametrize("what", REASONS, ids=lambda what: what.__name__)
def test_what_cannot_be_captured_is_a_reason_and_the_stream_goes_on(
    device: Device, what: Callable[[Device], None]
) -> None:
    chain = Chain(device)

    def call() -> None:
        chain.enqueue()
        what(device)

    with pytest.raises(CaptureError, match=REASONS[what]):
        device.capture(call)
    chain.given[:] = 4
    chain.enqueue()
    device.capture(chain.enqueue)()
    device.synchronise()
    assert chain.got.tolist() == [8, 8, 8, 8]


def test_a_library_that_hides_a_failure_does_not_hide_that_the_capture_broke(device: Device) -> None:
    def call() -> None:
        with pytest.raises(Exception, match="UNSUPPORTED"):
            device.synchronise()

    with pytest.raises(CaptureError, match=r"^CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        device.capture(call)


def test_who_interrupts_a_capture_is_heard_and_the_stream_goes_on(device: Device) -> None:
    def call() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.capture(call)
    device.synchronise()


def test_another_thread_may_allocate_while_one_captures(device: Device) -> None:
    chain, made = Chain(device), []

    def call() -> None:
        chain.enqueue()
        thread = Thread(target=lambda: made.append(device.pinned(64)))
        thread.start()
        thread.join()

    device.capture(call)
    assert len(made) == 1
