"""A person's model may run for ever: Ctrl-C ends that at any time, and so does a limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.reference.interruptible import interruptible
from collage_evo.graph.reference.reference import Reference
from tests.support.models import parse_graph
from tests.support.typed import not_none


def endless() -> onnx.ModelProto:
    """A loop whose condition stays true."""
    body = "body (int64 i, bool on, float[2] a) => (bool still, float[2] b) { still = Identity(on) b = Mul(a, a) }"
    return parse_graph(f"g (float[2] x) => (float[2] y) <bool yes = {{1}}> {{ y = Loop<body = {body}>(, yes, x) }}")


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    main = not_none(threading.main_thread().ident)
    signal.pthread_kill(main, signal.SIGINT)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_is_heard_while_a_library_works() -> None:
    stopped, ended = threading.Event(), threading.Event()

    def work() -> None:
        press_ctrl_c()
        stopped.wait()
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        interruptible(work, stopped.set)
    assert ended.wait(60)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_ends_a_model_that_runs_for_ever() -> None:
    reference = Reference(endless())
    soon = threading.Timer(0.2, press_ctrl_c)

    def run() -> None:
        soon.start()
        reference.run({"x": np.ones(2, np.float32)})

    with pytest.raises(KeyboardInterrupt):
        run()
    until_idle()


def test_a_model_that_runs_longer_than_it_may_is_ended_and_told_of() -> None:
    reference = Reference(endless(), timeout_s=0.1)
    with pytest.raises(InputError, match=r"longer than 0\.1 s.*fitness\.timeout_s"):
        reference.run({"x": np.ones(2, np.float32)})
    until_idle()


def until_idle() -> None:
    """The library has ended its work too."""
    deadline = time.monotonic() + 60
    while any(thread.name == "interruptible" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.01)


def test_what_the_work_gives_or_raises_comes_back() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0)
