"""Captures: what is recorded, what a replay does, and why something cannot be recorded."""

from collections.abc import Callable
from threading import Thread

import numpy as np
import pytest

from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import CaptureError
from stand_in import FakeCuda


class Chain:
    """From the host to the device, there to another array, and back: reads ``given``, writes ``got``."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.given, self.got = (device.pinned(16).view(np.float32) for _ in range(2))
        memory = device.arena(512)
        self._first, self._second = memory(0, (4,), "float32"), memory(256, (4,), "float32")

    def enqueue(self) -> None:
        self._device.copy_in(self._first, self.given)
        self._device.copy(self._second, self._first)
        self._device.copy_out(self.got, self._second)


def test_what_is_captured_does_not_run_until_it_is_replayed(any_device: Device) -> None:
    chain = Chain(any_device)
    chain.given[:] = 3
    replay = any_device.capture(chain.enqueue)
    any_device.synchronise()
    assert not chain.got.any()
    replay()
    any_device.synchronise()
    assert chain.got.tolist() == [3, 3, 3, 3]


def test_a_replay_sees_what_the_inputs_hold_by_then(any_device: Device) -> None:
    chain = Chain(any_device)
    replay = any_device.capture(chain.enqueue)
    for value in (1, 5):
        chain.given[:] = value
        replay()
        any_device.synchronise()
        assert chain.got.tolist() == [value] * 4


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


def test_one_that_is_let_go_of_while_another_is_made_breaks_nothing(device: Device, fake_cuda: FakeCuda) -> None:
    chain = Chain(device)
    held = [device.capture(chain.enqueue)]

    def call() -> None:
        held.clear()
        chain.enqueue()

    device.capture(call)
    assert [made.error for made in fake_cuda.trace() if made.name == "cuGraphExecDestroy"] == [0, 0]


def breaking(device: Device) -> None:
    raise RuntimeError("no kernel for this\nand more of it")


REPLAYS: dict[Device, Callable[[], None]] = {}
"""What was captured before, for each device."""
UNSUPPORTED = "^CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: .*"
REASONS: dict[str, tuple[Callable[[Device], object], str]] = {
    "allocates": (lambda device: device.arena(64), rf"{UNSUPPORTED} \(cuMemAlloc_v2\)$"),
    "pins": (lambda device: device.pinned(64), rf"{UNSUPPORTED} \(cuMemAllocHost_v2\)$"),
    "waits": (lambda device: device.synchronise(), rf"{UNSUPPORTED} \(cuStreamSynchronize\)$"),
    "times": (
        lambda device: device.time_ms(lambda: None),
        r"^CUDA_ERROR_(CAPTURED_EVENT|STREAM_CAPTURE_UNSUPPORTED): .* \(cuEventSynchronize\)$",
    ),
    "captures": (lambda device: device.capture(lambda: None), "^something is being captured already$"),
    "replays": (lambda device: REPLAYS[device](), rf"{UNSUPPORTED} \(cuGraphLaunch\)$"),
    "breaks": (breaking, "^no kernel for this$"),
}


@pytest.mark.parametrize(("work", "reason"), REASONS.values(), ids=REASONS)
def test_what_cannot_be_captured_is_a_reason_and_the_stream_goes_on(
    any_device: Device, work: Callable[[Device], object], reason: str
) -> None:
    device = any_device
    chain = Chain(device)
    REPLAYS[device] = device.capture(chain.enqueue)

    def call() -> None:
        chain.enqueue()
        work(device)

    with pytest.raises(CaptureError, match=reason):
        device.capture(call)
    del REPLAYS[device]
    chain.given[:] = 4
    chain.enqueue()
    device.capture(chain.enqueue)()
    device.synchronise()
    assert chain.got.tolist() == [4, 4, 4, 4]


def test_a_library_that_hides_a_failure_does_not_hide_that_the_capture_broke(any_device: Device) -> None:
    def call() -> None:
        with pytest.raises(Exception, match="UNSUPPORTED"):
            any_device.synchronise()

    with pytest.raises(CaptureError, match=r"^CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"):
        any_device.capture(call)


def test_who_interrupts_a_capture_is_heard_and_the_stream_goes_on(any_device: Device) -> None:
    def call() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        any_device.capture(call)
    any_device.synchronise()


def test_another_thread_may_allocate_while_one_captures(any_device: Device) -> None:
    chain, made = Chain(any_device), []

    def call() -> None:
        chain.enqueue()
        thread = Thread(target=lambda: made.append(any_device.pinned(64)))
        thread.start()
        thread.join()

    any_device.capture(call)
    assert len(made) == 1
