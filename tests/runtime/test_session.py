"""A loaded placement: right from several threads at once, clear about bad input, nothing allocated while it runs."""

import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.reference import reference_outputs
from collage_evo.runtime.session import Session
from collage_evo.testing.models import chain, tiny_convnet
from tests.runtime.helpers import TARGET, alternating, whole

MODEL = tiny_convnet()


def image(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype(np.float32)}


def expected(feeds: dict[str, np.ndarray]) -> np.ndarray:
    return reference_outputs(MODEL, feeds, 1)[0]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


@pytest.fixture
def session(cache: Path) -> Iterator[Session]:
    with Session([alternating(MODEL, cache, ("onnxruntime", "openvino"))], TARGET) as session:
        yield session


def test_regions_of_two_backends_give_the_models_answer(session: Session) -> None:
    np.testing.assert_allclose(session.run(None, image(0))[0], expected(image(0)), rtol=1e-5, atol=1e-6)
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("x", "tensor(float)", [1, 3, 16, 16])
    ]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [("y", [1, 10])]


def test_threads_that_share_a_session_each_get_their_own_answer(session: Session) -> None:
    wanted = [expected(image(seed)) for seed in range(4)]
    wrong = []

    def ask(seed: int) -> None:
        for _ in range(50):
            if not np.allclose(session.run(None, image(seed))[0], wanted[seed], rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_sessions_of_one_program_do_not_share_memory(session: Session) -> None:
    with Session([session.program], TARGET) as other:
        first = session.run(None, image(1))[0]
        other.run(None, image(2))
        np.testing.assert_array_equal(session.read("y"), first)


def test_answers_belong_to_the_caller(session: Session) -> None:
    first = session.run(None, image(1))[0]
    kept = first.copy()
    session.run(None, image(2))
    np.testing.assert_array_equal(first, kept)


def test_any_memory_layout_is_taken(session: Session) -> None:
    feeds = image(3)
    fortran = {"x": np.asfortranarray(feeds["x"])}
    strided = {"x": np.repeat(feeds["x"], 2, axis=3)[..., ::2]}
    for given in (fortran, strided):
        np.testing.assert_array_equal(session.run(None, given)[0], session.run(None, feeds)[0])


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
    with Session([alternating(MODEL, cache, ("onnxruntime",))], TARGET) as session:
        pass
    with pytest.raises(InputError, match="closed"):
        session.run(None, image(0))
    for call in (session.execute, session.profile, lambda: session.read("y"), lambda: session.copies("y")):
        with pytest.raises(InputError, match="closed"):
            call()


def test_a_tensor_that_holds_nothing_is_named(session: Session) -> None:
    with pytest.raises(InputError, match="'nothing' holds nothing"):
        session.read("nothing")


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
    text = "g (float[4] x) => (float[4] x, float[4] y, float[2] c) <float[2] c = {1, 2}> { y = Neg(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    given = np.arange(4, dtype=np.float32)
    with Session([whole(model, tmp_path, backend)], TARGET) as session:
        x, y, c = session.run(None, {"x": given})
    np.testing.assert_array_equal(x, given)
    np.testing.assert_array_equal(y, -given)
    np.testing.assert_array_equal(c, [1, 2])


@pytest.mark.parametrize("size", [4, "n"])
def test_an_output_that_is_asked_for_twice_comes_as_two_arrays(size: int | str, tmp_path: Path) -> None:
    graph = f"g (float[{size}] x) => (float[{size}] y, float[{size}] x) {{ y = Neg(x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    x = np.ones(4, np.float32)
    with Session([whole(model, tmp_path)], TARGET) as session:
        first, second, passed = session.run(["y", "y", "x"], {"x": x})
    first[:] = passed[:] = 7
    np.testing.assert_array_equal(second, -np.ones(4))
    np.testing.assert_array_equal(x, np.ones(4))


def test_a_session_that_was_closed_says_so_when_it_is_read(cache: Path) -> None:
    session = Session([alternating(MODEL, cache, ("onnxruntime",))], TARGET)
    session.run(None, image(0))
    session.close()
    for ask in (session.read, session.copies):
        with pytest.raises(InputError, match="this session is closed"):
            ask("y")


def test_a_tensor_whose_conversion_runs_the_session_is_converted_before(session: Session) -> None:
    class Tensor:
        def numpy(self) -> np.ndarray:
            session.run(None, image(1))
            return image(0)["x"]

    np.testing.assert_allclose(session.run(None, {"x": Tensor()})[0], expected(image(0)), rtol=1e-5, atol=1e-6)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ask", [lambda session: session.run(None, image(1)), lambda session: session.close()])
def test_a_signal_handler_that_uses_the_session_at_work_is_told_so(
    session: Session, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Session], object]
) -> None:
    execute, raised_inside = session._current.execute_here, []

    def interrupted() -> None:
        with pytest.raises(InputError, match="at work in this thread already") as raised:
            ask(session)
        raised_inside.append(raised.value)
        execute()

    monkeypatch.setattr(session._current, "execute_here", interrupted)
    np.testing.assert_allclose(session.run(None, image(0))[0], expected(image(0)), rtol=1e-5, atol=1e-6)
    assert len(raised_inside) == 1
    monkeypatch.undo()
    np.testing.assert_allclose(session.run(None, image(1))[0], expected(image(1)), rtol=1e-5, atol=1e-6)


def test_a_session_says_what_it_takes_and_what_runs(session: Session) -> None:
    assert repr(session).endswith("x tensor(float)[1, 3, 16, 16] -> y; onnxruntime + openvino>")
