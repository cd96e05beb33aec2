"""Pieces of a device that do not need each other: they run at the same time where that is right and faster."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from collage_evo.devices.cuda import CudaDevice
from collage_evo.devices.device import Replay
from collage_evo.devices.open import open_device
from collage_evo.errors import UnavailableError
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime import device_work
from collage_evo.runtime.device_work import DeviceWork
from collage_evo.runtime.session import Session
from collage_evo.testing.models import tiny_convnet
from tests.runtime.device_helpers import CUDA, DEVICE, HOST, PLAIN, Engine, placed
from tests.support.cuda import FakeCuda, host_view
from tests.support.cuda.backend import FakeGpuBackend
from tests.support.models import tiny_branchy

pytestmark = pytest.mark.usefixtures("cuda")
BRANCHES = tiny_branchy()
BRANCHES_X = np.random.default_rng(0).standard_normal((5, 1, 4, 8, 8)).astype(np.float32)


def assert_branches_are_right(session: Session) -> None:
    for x in BRANCHES_X:
        wanted = reference_outputs(BRANCHES, {"x": x}, 1)[0]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    array = open_device("cuda").arena(x.nbytes)(0, x.shape, "float32")
    host_view(array)[...] = x
    (there,) = session.run_on_device({"x": array}).values()
    np.testing.assert_allclose(host_view(there), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("engines", [(DEVICE,), (*[DEVICE] * 4, HOST), (*[DEVICE] * 6, PLAIN)])
def test_pieces_that_do_not_need_each_other_overlap_where_that_is_faster(
    cache: Path, monkeypatch: pytest.MonkeyPatch, overlaps: bool, engines: tuple[Engine, ...]
) -> None:
    times = (1.0, 2.0) if overlaps else (2.0, 1.0)
    monkeypatch.setattr(DeviceWork, "_race", lambda *_: times)
    captured: list[bool] = []
    capture = CudaDevice.capture

    def noted(device: CudaDevice, call: Callable[[], None], overlapping: bool = False) -> Replay:
        captured.append(overlapping)
        return capture(device, call, overlapping)

    monkeypatch.setattr(CudaDevice, "capture", noted)
    with Session([placed(BRANCHES, cache, *engines)], CUDA) as session:
        assert_branches_are_right(session)
        assert session.raced_ms == times
        assert captured[-1] == overlaps, "of a run between device arrays"
        assert not any("same time" in note for note in session.notes)


def test_which_is_faster_is_found_by_turns_of_whole_runs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[object] = []
    time_ms = CudaDevice.time_ms

    def noted(device: CudaDevice, call: Callable[[], None]) -> float:
        replays.append(call)
        return time_ms(device, call)

    monkeypatch.setattr(CudaDevice, "time_ms", noted)
    with Session([placed(BRANCHES, cache, DEVICE)], CUDA) as session:
        assert_branches_are_right(session)
        assert session.raced_ms is not None
    assert replays[0] is not replays[1]
    assert replays[::2] == replays[:1] * (len(replays) // 2)


def test_in_a_chain_and_where_pieces_share_memory_nothing_is_captured_twice(
    cache: Path, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = tiny_convnet()
    programs = [placed(chain, cache, DEVICE), placed(BRANCHES, cache, DEVICE)]
    for program, shares in zip(programs, (False, True), strict=True):
        monkeypatch.setattr(FakeGpuBackend, "pieces_share_memory", shares)
        before = cuda.counts()["cuStreamBeginCapture"]
        with Session([program], CUDA) as session:
            session.run(None, {"x": np.ones(program.tensors["x"].shape, np.float32)})
            assert session.raced_ms is None
        assert cuda.counts()["cuStreamBeginCapture"] == before + 1


def test_where_overlapping_changes_outputs_pieces_take_turns(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_work, "waits_of", lambda steps, program, pools: [()] * len(steps))
    with Session([placed(BRANCHES, cache, DEVICE)], CUDA) as session:
        assert_branches_are_right(session)
        assert session.notes == ("nothing runs at the same time: outputs were others than in turn",)


def test_where_the_driver_cannot_overlap_pieces_run_in_turn(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: CudaDevice) -> tuple[int, ...]:
        raise UnavailableError("the NVIDIA driver is too old")

    monkeypatch.setattr(CudaDevice, "_ends", refused)
    with Session([placed(BRANCHES, cache, DEVICE)], CUDA) as session:
        assert_branches_are_right(session)
        (note,) = session.notes
        assert note.endswith(" not at the same time: the NVIDIA driver is too old")
