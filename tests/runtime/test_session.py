"""A loaded placement: right from several threads at once, clear about bad input, nothing allocated while it runs."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from collage_evo.errors import InputError
from collage_evo.runtime.runner import load_piece
from collage_evo.runtime.session import Session
from tests.runtime.helpers import CONVNET, TARGET, alternating, assert_expected, expected, image, whole
from tests.support.models import chain, parse_graph


@pytest.fixture
def session(cache: Path) -> Iterator[Session]:
    with Session([alternating(CONVNET, cache, ("onnxruntime", "openvino"))], TARGET) as session:
        yield session


def test_regions_of_two_backends_give_the_models_answer(session: Session) -> None:
    assert_expected(session.run(None, image(0))[0], 0)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [("x", "tensor(float)", [1, 3, 16, 16])]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("y", [1, 10])]


def test_threads_that_share_a_session_each_get_their_own_answer(session: Session) -> None:
    wanted = [expected(seed) for seed in range(4)]

    def ask(seed: int) -> bool:
        answers = (session.run(None, image(seed))[0] for _ in range(50))
        return all(np.allclose(found, wanted[seed], rtol=1e-5, atol=1e-6) for found in answers)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(ask, range(4)))


def test_two_sessions_of_one_program_do_not_share_memory(session: Session) -> None:
    with Session([session.program], TARGET) as other:
        first = session.run(None, image(1))[0]
        other.run(None, image(2))
        np.testing.assert_array_equal(session.read("y"), first)


def test_answers_belong_to_the_caller(session: Session) -> None:
    first = session.run(None, image(1))[0]
    copy = first.copy()
    session.run(None, image(2))
    np.testing.assert_array_equal(first, copy)
    with pytest.raises(InputError, match="'nothing' holds nothing"):
        session.read("nothing")


@pytest.mark.parametrize(
    ("feeds", "outputs", "message"),
    [
        ({}, None, "input 'x' is missing"),
        ({**image(0), "z": np.zeros(1)}, None, "no input 'z': this model takes x"),
        ({"x": np.zeros((1, 3, 16, 15), np.float32)}, None, r"float32\[1, 3, 16, 15\]; .*takes float32"),
        ({"x": np.zeros((1, 3, 16, 16))}, None, "is float64"),
        (image(0), ["nothing"], "no output 'nothing': this model gives y"),
    ],
)
def test_bad_requests_are_named(
    session: Session, feeds: dict[str, np.ndarray], outputs: list[str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        session.run(outputs, feeds)


def test_a_closed_session_says_so(cache: Path) -> None:
    with Session([alternating(CONVNET, cache, ("onnxruntime",))], TARGET) as session:
        session.run(None, image(0))
    asks = (session.execute, session.profile, lambda: session.read("y"), lambda: session.copies("y"))
    for ask in (*asks, lambda: session.run(None, image(0))):
        with pytest.raises(InputError, match="this session is closed"):
            ask()


def test_a_steady_run_takes_no_new_memory(cache: Path) -> None:
    feeds = {"x": np.ones((1, 64, 8, 8), np.float32)}
    with Session([alternating(chain(4, channels=64), cache, ("onnxruntime", "openvino"))], TARGET) as session:
        session.run(None, feeds)
        assert peak_bytes(session.execute) < feeds["x"].nbytes
        # The answer that ``run`` gives belongs to the caller: this is seen.
        assert peak_bytes(lambda: session.run(None, feeds)) >= feeds["x"].nbytes


def peak_bytes(call: Callable[[], object]) -> int:
    """Most memory that Python and NumPy allocate during one call, beyond what was there before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_running_an_artifact_needs_only_numpy() -> None:
    script = (
        "import sys, collage_evo, collage_evo.runtime.artifact as a\n"
        "from collage_evo.backends.registry import backend_names, get_backend\n"
        "[get_backend(n).probe() for n in backend_names()]\n"
        "heavy = {'onnx', 'onnxruntime', 'deap', 'optuna', 'joblib', 'typer', 'pydantic', 'scipy', 'openvino',"
        " 'ncnn', 'tvm', 'torch', 'psutil', 'yaml', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_outputs_that_no_node_computes_come_out(tmp_path: Path, backend: str) -> None:
    model = parse_graph("g (float[4] x) => (float[4] x, float[4] y, float[2] c) <float[2] c = {1, 2}> { y = Neg(x) }")
    given = np.arange(4, dtype=np.float32)
    with Session([whole(model, tmp_path, backend)], TARGET) as session:
        x, y, c = session.run(None, {"x": given})
    np.testing.assert_array_equal(x, given)
    np.testing.assert_array_equal(y, -given)
    np.testing.assert_array_equal(c, [1, 2])


@pytest.mark.parametrize("size", [4, "n"])
def test_an_output_that_is_asked_for_twice_comes_as_two_arrays(size: int | str, tmp_path: Path) -> None:
    model = parse_graph(f"g (float[{size}] x) => (float[{size}] y, float[{size}] x) {{ y = Neg(x) }}")
    x = np.ones(4, np.float32)
    with Session([whole(model, tmp_path)], TARGET) as session:
        first, second, passed = session.run(["y", "y", "x"], {"x": x})
    first[:] = passed[:] = 7
    np.testing.assert_array_equal(second, -np.ones(4))
    np.testing.assert_array_equal(x, np.ones(4))


def test_a_tensor_whose_conversion_runs_the_session_is_converted_before(session: Session) -> None:
    class Tensor:
        def numpy(self) -> np.ndarray:
            session.run(None, image(1))
            return image(0)["x"]

    assert_expected(session.run(None, {"x": Tensor()})[0], 0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ask", [lambda session: session.run(None, image(1)), lambda session: session.close()])
def test_a_signal_handler_that_uses_the_session_at_work_is_told_so(
    cache: Path, ask: Callable[[Session], object]
) -> None:
    raised_inside = []

    class Interrupted:
        def __init__(self, *piece: Any) -> None:
            self._honest = load_piece(*piece)

        def bind(self, *buffers: Any) -> Callable[[], None]:
            honest = self._honest.bind(*buffers)

            def call() -> None:
                with pytest.raises(InputError, match="running in this thread already") as raised:
                    ask(session)
                raised_inside.append(raised.value)
                honest()

            return call

    with Session([whole(CONVNET, cache)], TARGET, load=Interrupted) as session:
        for seed in range(2):
            assert_expected(session.run(None, image(seed))[0], seed)
    assert len(raised_inside) == 2


@pytest.mark.timeout(300)
def test_a_signal_handler_never_waits_for_the_run_that_it_interrupts(session: Session) -> None:
    """At each instruction of a run, where a handler may be called, it gets its own answer or is refused."""
    refused, given = set(), []

    def interrupt(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code is not Session.run.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            try:
                given.append(session.run(None, image(1))[0])
            except InputError as error:
                refused.add(str(error))
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        found = session.run(None, image(0))[0]
    finally:
        sys.settrace(before)
    assert_expected(found, 0)
    assert refused == {"this session is running in this thread already: use another session"}
    assert given
    for answer in given:
        assert_expected(answer, 1)
    assert_expected(session.run(None, image(2))[0], 2)


def test_a_session_says_what_it_takes_and_what_runs(session: Session) -> None:
    assert repr(session).endswith("x tensor(float)[1, 3, 16, 16] -> y; onnxruntime + openvino>")
