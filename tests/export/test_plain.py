"""Plain files give what the artifact gives, to the bit, in processes that have the libraries and not this package."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.plain import HasPlainFiles
from collage_evo.backends.registry import backend_names, get_backend
from collage_evo.errors import InputError
from collage_evo.export import export_plain
from collage_evo.export.deployed import pipeline
from collage_evo.export.folder import plain_files
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.processor import level, this_machine
from collage_evo.hardware.target import Target
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.runtime import input_limits
from collage_evo.runtime.artifact import Profile, load_artifact, read_artifact, write_artifact
from tests.export.runs import (
    POSITIONS,
    TARGET,
    alone,
    encoder,
    gives_the_same,
    halves,
    of_a_float_index,
    of_tokens,
    open_answer,
    open_sum,
    placed,
    usable,
    with_fallback,
)
from tests.runtime.helpers import whole
from tests.runtime.test_proven_shapes import prepared
from tests.support.models import chain, parse_graph, tiny_convnet, tiny_transformer

LIBRARIES = usable("onnxruntime", "openvino", "ncnn", "tvm", "torch")
ALONE = "import runpy, sys; sys.modules['collage_evo'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"  # noqa: E501


def check(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The folder's own check, in a process that cannot import this package."""
    command = [sys.executable, "-c", ALONE, str(folder / "check.py"), "--runs", "2", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=folder.parent)


def checked(run: Path, to: Path, *options: str) -> str:
    """What the check of ``run``'s plain files says where it is content; they are in ``to`` then."""
    export_plain(run, to)
    done = check(to, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exports_the_same(run: Path, to: Path) -> bool:
    """Whether the plain files of ``run``, in ``to`` then, give what its answer gives, by their own checks."""
    return gives_the_same("\n".join(export_plain(run, to).checks.values()))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives ``run``, whose answer is a small network on one library, and its plain files in ``out``."""

    @cache
    def of(backend: str) -> Path:
        place = tmp_path_factory.mktemp(backend)
        export_plain(placed(place / "run", tiny_convnet(), [(backend, "default")]), place / "out")
        return place

    return of


def test_what_lies_beside_the_folder_stays_and_nothing_else_comes(
    exported: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "there" / "out.tmp").mkdir(parents=True)
    (tmp_path / "there" / "out.tmp" / "thesis.txt").write_text("years of work")
    export_plain(exported("onnxruntime") / "run", tmp_path / "there" / "out")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"out", "out.tmp"}
    assert (tmp_path / "there" / "out.tmp" / "thesis.txt").read_text() == "years of work"


def test_a_run_whose_files_are_gone_is_not_to_be_resumed_for_them(tmp_path: Path) -> None:
    run = alone(tmp_path / "run", tiny_convnet(), LIBRARIES[0])
    shutil.rmtree(run / "work")
    with pytest.raises(InputError, match=r"the export needs .*work, which is missing: run the search again"):
        export_plain(run, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("backend", LIBRARIES)
def test_an_answer_of_one_library_is_one_file_that_gives_the_same(tmp_path: Path, backend: str) -> None:
    assert gives_the_same(checked(alone(tmp_path / "run", tiny_convnet(), backend), tmp_path / "out"))
    told = json.loads((tmp_path / "out" / "pipeline.json").read_text())
    assert [piece["files"][0].partition(".")[0] for piece in told["pieces"]] == ["model"]
    assert (told["inputs"], told["outputs"]) == (["x"], ["y"])


@pytest.mark.slow
def test_an_answer_of_several_pieces_runs_them_in_turn(tmp_path: Path) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [(name, "default") for name in (*LIBRARIES, LIBRARIES[0])])
    assert exports_the_same(run, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "pipeline.json").read_text())
    assert [piece["library"] for piece in told["pieces"]] == [*LIBRARIES, LIBRARIES[0]]


def lower_precision() -> list[tuple[str, str, Arithmetic | None]]:
    """Backends, variants that compile, and what is written into the piece."""
    asked = [("onnxruntime", "int8"), ("onnxruntime", "int8-blocks"), ("openvino", "int8"), ("openvino", "bf16"),
             ("openvino", "int8-weights")]  # fmt: skip
    known = ((name, get_backend(name), get_backend(name).variant(variant)) for name, variant in asked)
    return [
        (name, variant.base, variant.arithmetic if variant.writes else None)
        for name, backend, variant in known
        if name in LIBRARIES and not backend.declines(variant)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "variant", "low"), lower_precision())
def test_lower_precision_is_in_the_files_or_in_the_settings(
    exported: Callable[[str], Path], tmp_path: Path, backend: str, variant: str, low: Arithmetic | None
) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [(backend, variant)], low)
    assert exports_the_same(run, tmp_path / "out")
    exact = exported(backend) / "run"
    feeds = {"x": np.load(tmp_path / "out" / "samples" / "0.in.0.npy")}
    lower, higher = (load_artifact(one / "best.collage").run(None, feeds)[0] for one in (run, exact))
    assert not np.array_equal(lower, higher)  # otherwise there would be nothing to keep


def test_what_takes_other_shapes_is_a_folder_beside_that_of_the_searched_shapes(tmp_path: Path) -> None:
    def net(rows: int | str) -> onnx.ModelProto:
        made = Builder("net")
        x = made.input("x", (rows, 4))
        return made.model(made.op("Relu", made.op("MatMul", x, made.const(np.eye(4, dtype=np.float32))), output="y"))

    done = export_plain(with_fallback(tmp_path / "run", net(2), net("rows")), tmp_path / "out")
    assert done.folders == {"2x4": "x [2, 4]", "open": "x [?, 4]"}
    shapes = [np.load(file).shape for file in sorted((tmp_path / "out" / "open" / "samples").glob("*.in.0.npy"))]
    assert shapes == [(2, 4), (4, 4)]
    assert gives_the_same(done.checks["open"])


def test_sizes_that_the_model_does_not_take_print_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "(float[{n}, 4] x) => (float[2, 4] y) <float[2, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{ y = Add(x, w) }}"
    fixed, model = (
        onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {body.format(n=n)}') for n in ("2", "n")
    )
    export_plain(with_fallback(tmp_path / "run", fixed, model), tmp_path / "files")
    assert "onnxruntime" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "g (float[1, 8] x) => (int64[2, n] y) { r = Relu(x) y = NonZero(r) }",
        "g (float[2] x, float s) => (float[2] y) { y = Mul(x, s) }",
    ],
    ids=["a shape that depends on data", "a scalar"],
)
def test_tensors_of_any_shape_go_out(text: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    assert exports_the_same(alone(tmp_path / "run", model, "onnxruntime"), tmp_path / "out")


def compiles(library: str, links: Path) -> bool:
    """Whether a C++ compiler finds the library's headers here."""
    try:
        runpy.run_path(str(plain_files(library, "default").code / "piece.py"))["cpp_flags"](links)
    except FileNotFoundError:
        return False
    return True


@pytest.mark.slow
def test_the_runner_in_c_plus_plus_gives_the_same(tmp_path: Path) -> None:
    # PyTorch's headers take minutes to compile.
    there = [name for name in LIBRARIES if name != "torch" and compiles(name, tmp_path / "links")]
    if not there:
        pytest.skip("no library here has C++ headers")
    run = placed(tmp_path / "run", tiny_convnet(), [(name, "default") for name in there])
    said = checked(run, tmp_path / "out", "--cpp")
    assert [line.partition(":")[0] for line in said.splitlines()] == ["Python", "C++"]
    assert gives_the_same(said)


def test_a_check_fails_over_outputs_that_are_not_the_stored_ones(
    exported: Callable[[str], Path], tmp_path: Path
) -> None:
    shutil.copytree(exported("onnxruntime") / "out", tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "model.onnx")
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["x", "y"]
    assert check(tmp_path / "out").returncode == 0
    stored = tmp_path / "out" / "samples" / "0.out.0.npy"
    np.save(stored, np.load(stored) * 1.1)
    done = check(tmp_path / "out")
    assert done.returncode == 1
    assert "MORE than 0.001" in done.stdout


def test_nothing_appears_of_files_that_do_not_run_as_the_answer_does(tmp_path: Path) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [("openvino", "default")])
    other = placed(tmp_path / "other", tiny_convnet(seed=1), [("openvino", "default")])
    shutil.copy(other / "work" / "normalised.onnx", run / "work")  # the same operators, other weights
    with pytest.raises(InputError, match="do not run as the answer does"):
        export_plain(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("out*"))


def test_the_runner_refuses_indices_that_lead_out_of_their_table(tmp_path: Path) -> None:
    model = tiny_transformer(vocabulary=50)
    export_plain(placed(tmp_path / "run", model, [("openvino", "default")]), tmp_path / "out")
    lines = "import numpy as np, pipeline; pipeline.Pipeline().run({'ids': np.full((1, 8), 50)})"
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path / "out", capture_output=True, text=True)
    assert "ids is to be from -50 to 49" in done.stderr


GOES_ROUND = """
import numpy as np, pipeline
good, loaded = np.array([[0, 4, -5]], np.float32), pipeline.Pipeline()
class Lying(np.ndarray):
    def min(self, *_, **__): return 0
    max = min
    def __array_ufunc__(self, *_, **__): return np.ones(self.shape, bool)
with_5 = np.where(good == 4, 5, good).astype(np.float32)
wrong = [np.where(good == 4, x, good).astype(np.float32) for x in (np.nan, np.inf, -np.inf, 5, -6)]
for given in (*wrong, with_5.view(Lying), np.ma.masked_array(with_5, mask=good == 4)):
    try:
        loaded.run({'i': given})
    except ValueError as error:
        print(error)
    else:
        print('ran on', np.asarray(given))
first = loaded.run({'i': good})['y']
fed, inner = good.copy(), loaded._input_limits.first_outside
def check(*args):
    found = inner(*args)
    fed[...] = 5
    return found
loaded._input_limits.first_outside = check
assert np.array_equal(loaded.run({'i': fed})['y'], first) and (fed == 5).all()
print('done')
"""


def test_nothing_goes_round_the_check_of_the_runner_and_the_artifact_refuses_the_same_floats(tmp_path: Path) -> None:
    run = placed(tmp_path / "run", of_a_float_index(), [("openvino", "default")])
    export_plain(run, tmp_path / "out")
    ours = Path(input_limits.__file__)
    assert (tmp_path / "out" / ours.name).read_text() == ours.read_text()
    command = [sys.executable, "-c", GOES_ROUND]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=250)
    *refused, last = done.stdout.splitlines()
    assert last == "done", done.stdout + done.stderr
    found = [line.removeprefix("i is to be from -5 to 4, not ") for line in refused]
    masked = "i has masked values: fill them first (numpy.ma.filled)"
    assert found == ["nan", "inf", "-inf", "5.0", "-6.0", "5.0", masked]
    session = load_artifact(run / "best.collage")
    for value in (np.nan, np.inf, -np.inf, 5, -6):
        with pytest.raises(InputError, match=r"^input 'i': ind(ex|ices) "):
            session.run(None, {"i": np.array([[0, value, -5]], np.float32)})
    assert session.run(None, {"i": np.array([[0, 4.75, -5.5]], np.float32)})[0].tolist()[0][1] == [-8, -9]


def test_names_of_a_model_act_neither_on_its_readme_nor_on_code_to_copy(tmp_path: Path) -> None:
    odd = 'x`|"\\<b>\u202e\n"]; system("x'
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    model = onnx.parser.parse_model(text)
    model.graph.input[0].name = model.graph.node[0].input[0] = odd
    assert exports_the_same(alone(tmp_path / "run", model, "onnxruntime"), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "\u202e" not in text
    (row,) = (line for line in text.splitlines() if "| input |" in line)
    assert row.replace("\\|", "").count("|") == 5
    literal = '"x`|\\"\\\\<b>\\u202e\\012\\"]; system(\\"x"'
    assert f"std::memcpy(pipeline[{literal}].data" in text


def test_what_has_no_plain_form_is_refused_in_a_line(tmp_path: Path) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [("openvino", "default")])
    with pytest.raises(InputError, match="exists already"):
        export_plain(run, tmp_path)
    shutil.copy(run / "work" / "reference.npz", tmp_path / "kept.npz")
    artifact = read_artifact(run / "best.collage")
    said_nothing = replace(artifact.profiles[0], info={})
    write_artifact(tmp_path / "before" / "best.collage", [said_nothing], TARGET, artifact.signature)
    os.symlink(run / "work", tmp_path / "before" / "work")
    with pytest.raises(InputError, match="does not say what it was compiled from"):
        export_plain(tmp_path / "before", tmp_path / "out")
    shutil.rmtree(run / "work")
    shutil.copytree(placed(tmp_path / "other", chain(2), [("openvino", "default")]) / "work", run / "work")
    shutil.copy(tmp_path / "kept.npz", run / "work" / "reference.npz")
    with pytest.raises(InputError, match="is of another run than the artifact"):
        export_plain(run, tmp_path / "out")


@pytest.mark.parametrize(("name", "value"), [("LD_PRELOAD", "x.so"), ("OMP_NUM_THREADS", "x")])
def test_a_manifest_sets_no_variable_but_numbers_that_threads_obey(
    exported: Callable[[str], Path], tmp_path: Path, name: str, value: str
) -> None:
    folder = Path(shutil.copytree(exported("onnxruntime") / "out", tmp_path / "out"))
    manifest = json.loads((folder / "pipeline.json").read_text())
    (folder / "pipeline.json").write_text(json.dumps(manifest | {"environment": {name: value}}))
    done = check(folder)
    assert done.returncode == 1
    assert f"ValueError: pipeline.json sets the variable '{name}' to '{value}': do not use it" in done.stderr


def test_the_variables_of_all_backends_are_those_that_readers_of_manifests_set() -> None:
    variables = set[str]()
    for backend in backend_names():
        if isinstance(get_backend(backend), HasPlainFiles):
            variables |= get_backend(backend).environment(Target(threads=2)).keys()
    assert variables == pipeline.VARIABLES
    provider = Path(__file__).parents[2] / "plugins" / "onnxruntime_ep" / "src" / "answer.hpp"
    assert all(f'"{name}"' in provider.read_text() for name in variables)


def test_a_backend_without_plain_files_is_named() -> None:
    with pytest.raises(InputError, match=r"pieces of tensorrt/cuda have no plain form.* without tensorrt"):
        plain_files("tensorrt", "cuda")


@pytest.mark.parametrize("backend", usable("onnxruntime", "openvino"))
def test_the_lines_of_the_readme_give_what_the_answer_gives(exported: Callable[[str], Path], backend: str) -> None:
    out = exported(backend) / "out"
    text = (out / "README.md").read_text().partition(f"## {backend}")[2]
    lines = text.partition("```python\n")[2].partition("```")[0]
    atol = 1e-5 if level() else 0.0  # see gives_the_same
    tail = (
        f"import numpy as np\nassert np.allclose(outputs[0], np.load('samples/0.out.0.npy'), rtol=0, atol={atol})\n"
    )
    head = "import numpy as np\nfeeds = {'x': np.load('samples/0.in.0.npy')}\n"
    done = subprocess.run([sys.executable, "-c", head + lines + tail], cwd=out, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_the_readme_tells_each_language_the_same_settings_and_where_weights_of_8_bits_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = placed(tmp_path / "run", chain(2), [("onnxruntime", "nchw")])
    for saturates, features in ((True, {"avx2"}), (False, {"avx2", "avx_vnni"})):
        machine = replace(this_machine(), features=frozenset(features))
        monkeypatch.setattr("collage_evo.export.folder.this_machine", lambda machine=machine: machine)
        export_plain(run, tmp_path / f"out-{saturates}")
        text = (tmp_path / f"out-{saturates}" / "README.md").read_text()
        assert ("weights have 8 bits" in text) != saturates
    assert "options.setOptimizationLevel(OrtSession.SessionOptions.OptLevel.EXTENDED_OPT);" in text
    assert "options.SetGraphOptimizationLevel(ORT_ENABLE_EXTENDED);" in text
    assert "options.setIntraOpNumThreads(1);" in text
    assert 'options.AddConfigEntry("session.force_spinning_stop", "1");' in text


OF_MANY_SHAPES = """
import numpy as np, pipeline
given, loaded = np.load('given.npz'), pipeline.Pipeline()
made = {}
for k in range(len(given.files)):
    try:
        loaded.run({'ids': np.zeros((1, 65), np.int64)})
    except Exception as error:
        reason = str(error)
    made[str(k)] = loaded.run({'ids': given[str(k)]})['y']
np.savez('made.npz', **made)
print(reason)
"""
"""A run between refused ones for each array in ``given.npz``."""
TOO_LONG = "Attempting to broadcast an axis by a dimension other than 1. 64 by 65"


@pytest.mark.parametrize("pieces", [[encoder()], halves()], ids=["one", "two"])
def test_open_inputs_of_any_size_give_what_the_model_does_and_a_size_too_large_is_refused(
    tmp_path: Path, pieces: list[onnx.ModelProto]
) -> None:
    run = open_answer(tmp_path / "run", pieces)
    done = export_plain(run, tmp_path / "out")
    assert done.folders == {".": "ids [?, ?]"}
    assert done.one_file == ("model.onnx, for ONNX Runtime in any language" if len(pieces) == 1 else "")
    rng = np.random.default_rng(1)
    given = of_tokens((int(rng.integers(1, 9)), int(rng.integers(1, POSITIONS + 1))) for _ in range(40))
    reference = Reference(encoder(), 1)
    expected = [reference.run_named(feeds)["y"] for feeds in given]
    np.savez(tmp_path / "out" / "given.npz", **{str(k): one["ids"] for k, one in enumerate(given)})
    command = [sys.executable, "-c", OF_MANY_SHAPES]
    ended = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=250)
    assert TOO_LONG in ended.stdout, ended.stderr
    made = np.load(tmp_path / "out" / "made.npz")
    session = load_artifact(run / "best.collage")
    for k, (feeds, right) in enumerate(zip(given, expected, strict=True)):
        with pytest.raises(InputError, match=f"^onnxruntime cannot run the model on these inputs: .*{TOO_LONG}"):
            session.run(None, {"ids": np.zeros((1, POSITIONS + 1), np.int64)})
        for found in (session.run(None, feeds)[0], made[str(k)]):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_the_runner_refuses_sizes_of_one_name_that_differ(tmp_path: Path) -> None:
    export_plain(open_sum(tmp_path / "run"), tmp_path / "out")
    program = (
        "import numpy as np, pipeline\n"
        "of, loaded = lambda rows: np.ones((rows, 3), np.float32), pipeline.Pipeline()\n"
        "for rows in (4, 1, 4):\n"
        "    try: print(loaded.run({'x': of(4), 'z': of(rows)})['y'].sum())\n"
        "    except ValueError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=250)
    assert ended.stdout == "24.0\n'rows' is 1 in 'z' and 4 in an input before it\n24.0\n", ended.stderr


def test_an_answer_whose_library_refuses_no_shapes_is_not_exported(tmp_path: Path) -> None:
    model = parse_graph("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    model = prepared(model, tmp_path, [{"x": np.ones(n, np.float32)} for n in (2, 3)]).original
    programs = [whole(model, tmp_path / "cache", backend) for backend in ("openvino", "onnxruntime")]
    write_artifact(tmp_path / "best.collage", [Profile(programs[0])], TARGET, fallback=programs[1])
    with pytest.raises(InputError, match="first request of each shape in onnxruntime, which plain files do not"):
        export_plain(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
