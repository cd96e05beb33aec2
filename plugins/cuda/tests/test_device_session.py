"""Sessions of which the device runs some pieces, on a driver that runs what is enqueued only when somebody waits."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.errors import CannotLoad, InputError
from collage_evo.runtime.session import Session
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceArray, OutOfDeviceMemory
from collage_evo_cuda.open import open_device
from device_helpers import CUDA, DEVICE, HOST, PLAIN, Engine, placed
from stand_in import FakeCuda, host_view
from tests.runtime.helpers import CONVNET, TARGET, assert_expected, expected, image, sums, whole
from tests.support.models import parse_graph

PIECES = len(CONVNET.graph.node)
GATHER = onnx.shape_inference.infer_shapes(
    parse_graph("g (int64[4] i) => (float[4, 1] y) <float[3, 1] w = {1, 2, 3}> { e = Gather(w, i) y = Neg(e) }", 18)
)
pytestmark = pytest.mark.usefixtures("cuda")


class Exported:
    """A library's array on the device, of which only DLPack's methods are known."""

    def __init__(self, array: DeviceArray) -> None:
        self.__dlpack__: Callable[..., object] = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def assert_right(session: Session, runs: int = 4) -> None:
    for seed in range(runs):
        assert_expected(session.run(None, image(seed))[0], seed)


def device_array(bytes_of: dict[str, np.ndarray] | None = None) -> DeviceArray:
    """An input of ``CONVNET`` on the device."""
    array = open_device("cuda").arena(4096)(0, (1, 3, 16, 16), "float32")
    if bytes_of is not None:
        host_view(array)[...] = bytes_of["x"]
    return array


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a capture has begun, each of which takes a while."""
    capture, begun = Device.capture, threading.Event()

    def slowly(device: Device, call: Callable[[], None]) -> Callable[[], None]:
        def late() -> None:
            begun.set()
            time.sleep(0.2)
            call()

        return capture(device, late)

    monkeypatch.setattr(Device, "capture", slowly)
    return begun


@pytest.mark.parametrize(
    "engines",
    [
        *((DEVICE,), (PLAIN,), (HOST,), (DEVICE, HOST), (HOST, DEVICE)),
        *((DEVICE, DEVICE, HOST), (HOST, HOST, DEVICE, PLAIN, DEVICE)),
    ],
    ids=lambda engines: "+".join(f"{backend}-{variant}" for backend, variant in engines),
)
def test_any_mixture_gives_the_models_answer_for_inputs_that_change(cache: Path, engines: tuple[Engine, ...]) -> None:
    with Session([placed(CONVNET, cache, *engines)], CUDA) as session:
        assert_right(session)
        note = ("fakegpu/plain not captured: it says that it cannot be",)
        assert session.notes == (note if PLAIN in engines else ())


def test_a_run_only_on_the_device_is_one_launch_and_one_wait(cache: Path, cuda: FakeCuda) -> None:
    with Session([placed(CONVNET, cache, DEVICE)], CUDA) as session:
        session.run(None, image(0))
        before = cuda.counts()
        session.execute()
        assert cuda.counts() - before == {"cuGraphLaunch": 1, "cuStreamSynchronize": 1}


def test_pieces_that_cannot_be_captured_are_enqueued_between_captures(cache: Path, cuda: FakeCuda) -> None:
    with Session([placed(CONVNET, cache, DEVICE, PLAIN)], CUDA) as session:
        session.run(None, image(0))
        before = cuda.counts()
        session.execute()
        spent = cuda.counts() - before
        assert spent["cuGraphLaunch"] == (PIECES + 1) // 2
        assert spent["cuLaunchHostFunc"] == PIECES // 2
        assert spent["cuStreamSynchronize"] == 1


def test_what_the_host_does_not_read_is_not_waited_for(cache: Path, cuda: FakeCuda) -> None:
    with Session([placed(CONVNET, cache, HOST, DEVICE, DEVICE, DEVICE)], CUDA) as session:
        session.run(None, image(0))
        before = cuda.counts()
        session.execute()
        waits, host_pieces = (cuda.counts() - before)["cuStreamSynchronize"], len(range(0, PIECES, 4))
        assert waits <= host_pieces + 1, "before each piece of the host, and at the end"


@pytest.mark.parametrize("fault", ["allocates", "synchronises", "refuses"])
def test_what_breaks_a_capture_runs_as_it_is_and_a_note_says_why(cache: Path, cuda: FakeCuda, fault: str) -> None:
    with Session([placed(CONVNET, cache, DEVICE, ("faultygpu", fault), DEVICE, DEVICE)], CUDA) as session:
        assert_right(session)
        assert all(note.startswith(f"faultygpu/{fault} not captured: ") for note in session.notes)
        assert session.notes
        before = cuda.counts()
        session.execute()
        assert (cuda.counts() - before)["cuGraphLaunch"] >= PIECES // 4, "the others are captured nevertheless"


@pytest.mark.parametrize("fault", ["elsewhere", "halfway"])
def test_work_on_another_stream_is_detected_before_a_replay(cache: Path, fake_cuda: FakeCuda, fault: str) -> None:
    # The first piece: its input is there for the whole run, so that what it works out during a capture is right.
    program = placed(CONVNET, cache, ("faultygpu", fault), *[DEVICE] * (PIECES - 1))
    with fake_cuda.used(cuda_lazy=0), Session([program], CUDA) as session:
        assert_right(session)
        assert session.notes == ("nothing is captured: a replay gave other outputs than the run before it",)


def test_an_input_that_a_piece_overwrites_is_seen_where_it_lies(cache: Path) -> None:
    with Session([placed(CONVNET, cache, ("faultygpu", "overwrites"), DEVICE)], CUDA) as session:
        session.run(None, image(0))
        on_host, on_device = session.copies("x")
        np.testing.assert_array_equal(on_host, image(0)["x"])
        np.testing.assert_array_equal(on_device, image(0)["x"] + 1)


@pytest.mark.parametrize(("fault", "error"), [("greedy", OutOfDeviceMemory), ("hoards", CannotLoad)])
def test_memory_that_is_out_is_an_error_in_one_line(cache: Path, fault: str, error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        Session([placed(CONVNET, cache, ("faultygpu", fault))], CUDA)
    assert len(str(refused.value).splitlines()) == 1


def test_tensors_that_do_not_fit_are_an_error(cache: Path, fake_cuda: FakeCuda) -> None:
    program = placed(CONVNET, cache, DEVICE)
    with fake_cuda.used(cuda_bytes=1000), pytest.raises(OutOfDeviceMemory):
        Session([program], CUDA)


def test_a_session_that_is_closed_leaves_nothing_on_the_device(cache: Path, cuda: FakeCuda) -> None:
    with Session([placed(CONVNET, cache, DEVICE, HOST, DEVICE)], CUDA) as session:
        session.run(None, image(0))
        assert session.clock is not None
        session.clock.time_ms()
        assert cuda.live_bytes > 0
    assert cuda.live_bytes == 0
    with pytest.raises(InputError, match="closed"):
        session.execute()
    with pytest.raises(InputError, match="closed"):
        session.run_on_device(image(0))


def test_threads_that_share_the_device_each_get_their_own_answer(cache: Path) -> None:
    program, wanted = placed(CONVNET, cache, DEVICE, DEVICE, HOST), [expected(seed) for seed in range(4)]
    with Session([program], CUDA) as one, Session([program], CUDA) as two, ThreadPoolExecutor(4) as threads:

        def ask(seed: int) -> bool:
            answers = ((one, two)[seed % 2].run(None, image(seed))[0] for _ in range(20))
            return all(np.allclose(found, wanted[seed], rtol=1e-5, atol=1e-6) for found in answers)

        assert all(threads.map(ask, range(4)))


def test_a_session_that_is_opened_while_another_captures_disturbs_nothing(
    cache: Path, capturing: threading.Event
) -> None:
    program = placed(CONVNET, cache, DEVICE)

    def serve() -> tuple[str, ...]:
        with Session([program], CUDA) as session:
            assert_right(session)
            return session.notes

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(serve)
        assert capturing.wait(60.0)
        assert serve() == first.result() == ()


@pytest.mark.parametrize("engines", [(DEVICE,), (PLAIN, DEVICE), (HOST, DEVICE), (DEVICE, HOST), (HOST,)])
def test_arrays_of_the_device_go_in_and_out(cache: Path, engines: tuple[Engine, ...]) -> None:
    array = device_array()
    with Session([placed(CONVNET, cache, *engines)], CUDA) as session:
        answers = []
        for seed in range(3):
            host_view(array)[...] = image(seed)["x"]
            answers.append(session.run_on_device({"x": array})["y"])
        for seed in range(3):  # earlier answers are the caller's own
            assert_expected(host_view(answers[seed]), seed)
        assert_expected(session.run(None, image(7))[0], 7)


def test_between_device_arrays_nothing_goes_by_way_of_the_host(cache: Path, cuda: FakeCuda) -> None:
    feeds = {"x": device_array()}
    with Session([placed(CONVNET, cache, DEVICE)], CUDA) as session:
        session.run_on_device(feeds)
        before = cuda.counts()
        session.run_on_device(feeds)
        spent = cuda.counts() - before
        assert spent["cuMemcpyDtoDAsync"] == 2
        assert not spent["cuMemcpyHtoDAsync"] + spent["cuMemcpyDtoHAsync"]


def test_any_dlpack_array_is_accepted_and_one_that_does_not_fit_is_named(cache: Path) -> None:
    with Session([placed(CONVNET, cache, DEVICE)], CUDA) as session:
        array = device_array(image(1))
        assert_expected(host_view(session.run_on_device({"x": Exported(array)})["y"]), 1)
        for wrong, message in (
            (image(0)["x"][..., :15], "is not contiguous"),
            (np.zeros((1, 3, 16, 15), np.float32), r"float32\[1, 3, 16, 15\]; .*takes float32"),
            (np.zeros((1, 3, 16, 16)), "is float64"),
            ([1.0], "offers no array through DLPack"),
            (replace(array, place=(2, 3)), r"lies on DLPack's device \(2, 3\), this session on \(1, 0\)"),
        ):
            with pytest.raises(InputError, match=message):
                session.run_on_device({"x": wrong})
        with pytest.raises(InputError, match="'x' is missing"):
            session.run_on_device({})


def test_a_region_is_timed_without_the_copies_and_leaves_its_outputs(cache: Path, cuda: FakeCuda) -> None:
    with Session([placed(CONVNET, cache, DEVICE)], CUDA) as session:
        session.run(None, image(0))
        session.feed(image(1))
        assert session.clock is not None
        assert session.clock.time_ms(flush_bytes=2**20) > 0
        assert_expected(session.read("y"), 1)
        every = [call.name for call in cuda.trace()]
        names = every[len(every) - 1 - every[::-1].index("cuMemsetD8Async") :]
        first, last = (i for i, name in enumerate(names) if name == "cuEventRecord")
        assert names[:first].count("cuMemcpyHtoDAsync") == 1
        assert names[first + 1 : last] == ["cuGraphLaunch"]


def test_each_piece_has_its_time_in_a_profile(cache: Path) -> None:
    with Session([placed(CONVNET, cache, DEVICE, HOST)], CUDA) as session:
        session.run(None, image(0))
        spent = session.profile()
        assert len(spent) == PIECES
        assert min(spent) >= 0
        assert_expected(session.read("y"), 0)


def test_tensors_of_open_shapes_do_not_lie_on_the_device(cache: Path) -> None:
    program = whole(sums("rows"), cache)
    there = replace(program, pieces=tuple(replace(piece, backend="fakegpu") for piece in program.pieces))
    with pytest.raises(InputError, match="fakegpu runs no piece with open shapes"):
        Session([there], CUDA)
    with (
        Session([program], CUDA) as session,
        pytest.raises(InputError, match="'x' has an open shape and cannot lie on the device: call run"),
    ):
        session.run_on_device({"x": np.zeros((2, 4), np.float32), "k": np.array([1])})


def test_a_session_for_the_host_takes_no_arrays_of_a_device(cache: Path) -> None:
    with (
        Session([placed(CONVNET, cache, HOST)], TARGET) as session,
        pytest.raises(InputError, match="was made for the CPU: call run"),
    ):
        session.run_on_device(image(0))


def test_a_session_only_on_the_host_has_no_clock_of_the_device(cache: Path) -> None:
    with Session([placed(CONVNET, cache, HOST)], CUDA) as session:
        assert session.clock is None


def test_what_a_library_brings_there_on_a_stream_of_its_own_has_arrived_before_the_first_run(cache: Path) -> None:
    with Session([placed(CONVNET, cache, ("faultygpu", "weights"))], CUDA) as session:
        assert_right(session)


def test_a_thread_that_is_the_first_to_want_device_arrays_gets_captures_too(cache: Path) -> None:
    feeds = {"x": device_array(image(1))}
    with Session([placed(CONVNET, cache, ("faultygpu", "handles"))], CUDA) as session:
        session.run(None, image(0))
        with ThreadPoolExecutor(1) as threads:
            assert_expected(host_view(threads.submit(session.run_on_device, feeds).result()["y"]), 1)
        assert session.notes == ()


def test_an_array_is_imported_while_nobody_captures(cache: Path, capturing: threading.Event) -> None:
    """Its owner has the stream wait for it: in a capture of another thread that would be a part of it."""
    device: Any = open_device("cuda")
    array, program, during = device_array(), placed(CONVNET, cache, DEVICE), list[bool]()

    def handed_over(**_: object) -> object:
        during.append(device._context._capturing)
        return array.__dlpack__()

    exported = Exported(array)
    exported.__dlpack__ = handed_over
    with Session([program], CUDA) as one, Session([program], CUDA) as two, ThreadPoolExecutor(1) as threads:
        threads.submit(one.run, None, image(0))
        assert capturing.wait(60.0)
        two.run_on_device({"x": exported})
    assert during == [False]


@pytest.mark.parametrize("engines", [(DEVICE,), (HOST, DEVICE)])
def test_indices_on_the_device_are_checked_before_they_are_read(cache: Path, engines: tuple[Engine, ...]) -> None:
    indices, program = open_device("cuda").arena(4096)(0, (4,), "int64"), placed(GATHER, cache, *engines[::-1])
    assert program.limits == {"i": (-3, 3)}
    with Session([program], CUDA) as session:
        for _ in range(3):
            host_view(indices)[...] = [0, 1, 2, -3]
            made = session.run_on_device({"i": indices})["y"]
            np.testing.assert_array_equal(host_view(made).ravel(), [-1, -2, -3, -1])
            host_view(indices)[...] = [0, 1, 2, 3]
            with pytest.raises(InputError, match="idx=3 must be within"):
                session.run_on_device({"i": indices})


@pytest.mark.parametrize("engines", [(DEVICE,), (HOST, DEVICE)])
def test_pieces_on_the_device_read_the_indices_that_were_checked(
    cache: Path, engines: tuple[Engine, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = placed(GATHER, cache, *engines[::-1])
    indices, copy_out = open_device("cuda").arena(4096)(0, (4,), "int64"), Device.copy_out

    def change(device: Device, host: np.ndarray, array: DeviceArray) -> None:
        if array is indices:
            device.synchronise()
            host_view(indices)[...] = [0, 2, 2, -3]
        copy_out(device, host, array)

    monkeypatch.setattr(Device, "copy_out", change)
    with Session([program], CUDA) as session:
        for _ in range(3):
            host_view(indices)[...] = 1
            made = session.run_on_device({"i": indices})["y"]
            np.testing.assert_array_equal(host_view(made).ravel(), [-1, -3, -3, -1])
