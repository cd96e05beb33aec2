"""Sessions of ONNX Runtime with the provider give what the artifact gives, to the bit, and refuse in one line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from collage_evo.export.context_model import export_context_model
from collage_evo.hardware.processor import level
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.arithmetic import Arithmetic
from collage_evo.runtime.artifact import load_artifact
from tests.export.runs import alone, of_a_float_index, placed, usable, with_fallback
from tests.support.hostile import FORKED, HOSTILE
from tests.support.mapped import folder_in_memory, replace_unseen
from tests.support.models import parse_graph, tiny_convnet, tiny_transformer

pytestmark = pytest.mark.skipif(
    usable("onnxruntime", "openvino") != ["onnxruntime", "openvino"], reason="needs ONNX Runtime and OpenVINO"
)
NCNN = os.environ.get("COLLAGE_EVO_NCNN")
MIXTURE = [("onnxruntime", "default"), ("openvino", "default"), ("onnxruntime", "default")]
Session = ort.InferenceSession
Open = Callable[..., Session]


@pytest.fixture(scope="session")
def opened(provider: str) -> Open:
    """Opens a model, or the ``model.onnx`` in a folder, with the provider."""

    def session(model: Path | bytes, options: Mapping[str, str] | None = None, **entries: str) -> Session:
        chosen = ort.SessionOptions()
        chosen.log_severity_level = 3
        for name, value in entries.items():
            chosen.add_session_config_entry(name.replace("_file", ".context_file"), value)
        devices = [one for one in ort.get_ep_devices() if one.ep_name == provider]
        chosen.add_provider_for_devices(devices, options or {})
        if isinstance(model, Path):
            model = model / "model.onnx" if model.is_dir() else model
        return ort.InferenceSession(model if isinstance(model, bytes) else str(model), sess_options=chosen)

    return session


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``run``, whose answer has pieces of both libraries, and its model in ``out``."""
    place = tmp_path_factory.mktemp("mixture")
    export_context_model(placed(place / "run", tiny_convnet(), MIXTURE), place / "out")
    return place


@pytest.fixture
def copy(mixture: Path, tmp_path: Path) -> Path:
    """A copy of the exported mixture, which a test may damage."""
    return Path(shutil.copytree(mixture / "out", tmp_path / "out"))


def images(count: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((1, 3, 16, 16), np.float32) for _ in range(count)]


def same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Equal to the bit; where tests hold the processor to a level, which exported files know nothing of, nearly."""
    if level():
        return all(np.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))
    return all(
        a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected, strict=True)
    )


def refusal(opened: Open, folder: Path, options: Mapping[str, str] | None = None) -> str:
    with pytest.raises(Exception, match=r".") as caught:
        opened(folder, options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "pipeline.json") -> None:
    """Change a manifest, and the digests that lead to it, as somebody would who made the answer so."""
    pieces = folder / "pieces"
    manifest = json.loads((pieces / name).read_text())
    change(manifest)
    (pieces / name).write_text(json.dumps(manifest))
    if name != "answer.json":
        digest = hashlib.sha256((pieces / name).read_bytes()).hexdigest()
        return rewrite(folder, lambda index: index["files"].update({name: digest}), "answer.json")
    model = onnx.load(folder / "model.onnx")
    notes = next(one for one in model.graph.node[0].attribute if one.name == "notes")
    notes.s = hashlib.sha256((pieces / name).read_bytes()).hexdigest().encode()
    onnx.save(model, folder / "model.onnx")


def test_a_mixture_of_libraries_gives_what_the_artifact_gives(mixture: Path, opened: Open, provider: str) -> None:
    session, artifact = opened(mixture / "out"), load_artifact(mixture / "run" / "best.collage")
    assert session.get_providers()[0] == provider
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", [1, 3, 16, 16])
    for x in images(20):
        assert same(session.run(None, {"x": x}), artifact.run(None, {"x": x}))


@pytest.mark.skipif(not usable("tvm"), reason="needs TVM")
def test_tvm_has_a_machine_for_each_thread_and_takes_memory_of_any_alignment(tmp_path: Path, opened: Open) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [("tvm", "default"), ("openvino", "default"), ("tvm", "default")])
    export_context_model(run, tmp_path / "out")
    session, artifact = opened(tmp_path / "out"), load_artifact(run / "best.collage")
    memory = np.zeros(768 * 4 + 128, np.uint8)
    expected = {}
    for k, x in enumerate(images(8)):
        odd = memory[4 * (k + 1) : 4 * (k + 1) + x.nbytes].view(np.float32).reshape(x.shape)
        np.copyto(odd, x)
        expected[k] = artifact.run(None, {"x": x})
        assert same(session.run(None, {"x": odd}), expected[k])
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda x: session.run(None, {"x": x}), images(8) * 50))
    assert all(same(one, expected[k % 8]) for k, one in enumerate(found))


def test_a_library_of_ncnn_that_is_missing_or_another_is_one_line(copy: Path, opened: Open, tmp_path: Path) -> None:
    """Before any test that loads ncnn: a process loads one, and keeps it."""
    rewrite(copy, lambda manifest: manifest["pieces"][1].update(library="ncnn"))
    place = {"ncnn": str(tmp_path)}
    line = f"the answer needs ncnn, whose libncnn.so was not found ({tmp_path}: "
    assert line in refusal(opened, copy, place)
    (tmp_path / "libncnn.so").symlink_to(next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")))
    assert "this ncnn lacks ncnn_version: install the answer's version" in refusal(opened, copy, place)


def of_ncnn_in_place(shape: tuple[int, ...]) -> onnx.ModelProto:
    """A network whose first and last layers work in place."""
    made = Builder("net")
    x = made.input("x", shape)
    return made.model(made.op("Relu", made.op("Neg", made.op("Relu", made.op("Tanh", x))), output="y"))


@pytest.mark.skipif(not (usable("ncnn") and NCNN), reason="needs ncnn, and its shared library in COLLAGE_EVO_NCNN")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", [tiny_convnet(), *map(of_ncnn_in_place, [(1, 3, 5, 5), (1, 3, 8, 8), (1, 7)])])
def test_ncnn_gives_what_the_artifact_gives_and_leaves_its_inputs_alone(
    tmp_path: Path, opened: Open, model: onnx.ModelProto, threads: int
) -> None:
    engines = [("ncnn", "default"), ("onnxruntime", "default"), ("ncnn", "sgemm")]
    run = placed(tmp_path / "run", model, engines if len(model.graph.node) > 4 else engines[:1])
    export_context_model(run, tmp_path / "out")

    def use(manifest: dict[str, Any]) -> None:
        for piece in manifest["pieces"]:
            piece["settings"].update({"num_threads": str(threads)} if piece["library"] == "ncnn" else {})

    rewrite(tmp_path / "out", use)
    session, artifact = opened(tmp_path / "out"), load_artifact(run / "best.collage")
    shape = artifact.get_inputs()[0].shape
    memory = np.zeros(int(np.prod(shape)) * 4 + 128, np.uint8)
    inputs = [np.random.default_rng(k).standard_normal(shape, np.float32) for k in range(8)]
    expected = [artifact.run(None, {"x": x}) for x in inputs]
    for k, x in enumerate(inputs):
        odd = memory[4 * (k + 1) : 4 * (k + 1) + x.nbytes].view(np.float32).reshape(x.shape)
        np.copyto(odd, x)
        assert same(session.run(None, {"x": odd}), expected[k])
        assert np.array_equal(odd, x)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: session.run(None, {"x": x}), inputs * 50))
    assert all(same(one, expected[k % 8]) for k, one in enumerate(found))


@pytest.mark.parametrize(("backend", "arithmetic"), [("onnxruntime", Arithmetic.INT8), ("openvino", Arithmetic.INT8)])
def test_int8_gives_the_same(tmp_path: Path, opened: Open, backend: str, arithmetic: Arithmetic) -> None:
    run = placed(tmp_path / "run", tiny_convnet(), [(backend, "default"), ("onnxruntime", "default")], arithmetic)
    export_context_model(run, tmp_path / "out")
    session, artifact = opened(tmp_path / "out"), load_artifact(run / "best.collage")
    for x in images(5):
        assert same(session.run(None, {"x": x}), artifact.run(None, {"x": x}))


def of_rows(rows: int | str) -> onnx.ModelProto:
    made = Builder("net")
    x = made.input("x", (rows, 4))
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    return made.model(made.op("Relu", made.op("MatMul", x, made.const(weights)), output="y"))


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_program_for_each_shape_and_one_for_all_others(tmp_path: Path, opened: Open, backend: str) -> None:
    run = with_fallback(tmp_path / "run", of_rows(2), of_rows("rows"), backend)
    export_context_model(run, tmp_path / "out")
    session, artifact = opened(tmp_path / "out"), load_artifact(run / "best.collage")
    for rows in (2, 5, 1, 2, 0, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        assert same(session.run(None, {"x": x}), artifact.run(None, {"x": x}))
    with pytest.raises(Exception, match="Got: 3 Expected: 4"):
        session.run(None, {"x": np.zeros((2, 3), np.float32)})


def test_a_shape_of_no_program_is_refused_with_those_that_there_are(tmp_path: Path, opened: Open) -> None:
    export_context_model(with_fallback(tmp_path / "run", of_rows(2), of_rows("rows")), tmp_path / "out")
    rewrite(tmp_path / "out", lambda index: index["folders"].remove("open"), "answer.json")
    session = opened(tmp_path / "out")
    with pytest.raises(Exception, match=r"input 'x' is float32\[3, 4\]; this model takes float32\[2, 4\]$"):
        session.run(None, {"x": np.zeros((3, 4), np.float32)})
    assert session.run(None, {"x": np.zeros((2, 4), np.float32)})[0].shape == (2, 3)


def test_open_tensors_pass_from_library_to_library(tmp_path: Path, opened: Open) -> None:
    """A chain that no search makes, as its borders are open: ONNX Runtime, OpenVINO, ONNX Runtime."""
    import openvino

    export_context_model(alone(tmp_path / "run", of_rows(2), "onnxruntime"), tmp_path / "out")
    pieces = tmp_path / "out" / "pieces"
    names = ["x", "a", "b", "y"]
    for k, operator in enumerate(["Neg", "Exp", "Relu"]):
        given, made = names[k], names[k + 1]
        text = f"g (float[n, 4] {given}) => (float[n, 4] {made}) {{ {made} = {operator}({given}) }}"
        onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}'), pieces / f"{k}.onnx")
    openvino.serialize(openvino.convert_model(pieces / "1.onnx"), str(pieces / "1.xml"), str(pieces / "1.bin"))

    def chain(manifest: dict[str, Any]) -> None:
        (first,) = manifest["pieces"]
        at = {"library": "openvino", "files": ["1.xml", "1.bin"], "settings": {"INFERENCE_PRECISION_HINT": "f32"}}
        manifest["pieces"] = [
            first | {"files": [f"{k}.onnx"], "inputs": [names[k]], "outputs": [names[k + 1]]} | (at if k == 1 else {})
            for k in range(3)
        ]
        manifest["tensors"] = {name: {"dtype": "float32", "shape": [-1, 4], "offset": None} for name in names}

    files = ("0.onnx", "1.xml", "1.bin", "2.onnx")
    digests = {name: hashlib.sha256((pieces / name).read_bytes()).hexdigest() for name in files}
    rewrite(tmp_path / "out", lambda index: index["files"].update(digests), "answer.json")
    rewrite(tmp_path / "out", chain)
    model = onnx.load(tmp_path / "out" / "model.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, ["n", 4]))
    onnx.save(model, tmp_path / "out" / "model.onnx")
    session = opened(tmp_path / "out")
    for rows in (3, 1, 8, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4), np.float32)
        assert np.allclose(session.run(None, {"x": x})[0], np.exp(-x), rtol=1e-6)


def test_ten_thousand_requests_of_four_threads_are_right(mixture: Path, opened: Open) -> None:
    session, inputs = opened(mixture / "out"), images(16)
    expected = [session.run(None, {"x": x})[0] for x in inputs]
    assert len({value.tobytes() for value in expected}) == len(inputs)
    wrong: list[Any] = []

    def serve(thread: int) -> None:
        try:
            for k in range(2500):
                which = (k * 7 + thread) % len(inputs)
                (found,) = session.run(None, {"x": inputs[which]})
                if not np.array_equal(found, expected[which]):
                    wrong.append((thread, k))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_operators_around_the_node_run_in_the_same_session(mixture: Path, tmp_path: Path, opened: Open) -> None:
    shutil.copytree(mixture / "out" / "pieces", tmp_path / "pieces")
    model = onnx.load(mixture / "out" / "model.onnx")
    node = model.graph.node[0]
    node.input[0], node.output[0] = "halved", "made"
    model.graph.value_info.append(helper.make_tensor_value_info("made", TensorProto.FLOAT, [1, 10]))
    model.graph.initializer.append(helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]))
    model.graph.node.insert(0, helper.make_node("Mul", ["x", "half"], ["halved"]))
    model.graph.node.append(helper.make_node("Neg", ["made"], ["y"]))
    onnx.save(model, tmp_path / "model.onnx")
    first, second = opened(tmp_path), opened(mixture / "out")
    (x,) = images(1)
    assert np.array_equal(first.run(None, {"x": x})[0], -second.run(None, {"x": x * np.float32(0.5)})[0])


def test_names_with_any_letters_are_read(tmp_path: Path, opened: Open) -> None:
    odd = 'x`|"\\<b>\u202e\n\U0001f600é'
    model = of_rows(2)
    model.graph.input[0].name = model.graph.node[0].input[0] = odd
    export_context_model(alone(tmp_path / "run", model, "onnxruntime"), tmp_path / "out")
    x = np.ones((2, 4), np.float32)
    assert opened(tmp_path / "out").run(None, {odd: x})[0].tolist() == [[18, 22, 26], [18, 22, 26]]


def test_indices_outside_their_table_are_refused_and_the_next_request_runs(tmp_path: Path, opened: Open) -> None:
    run = placed(tmp_path / "run", tiny_transformer(vocabulary=50), [("openvino", "default")])
    export_context_model(run, tmp_path / "out")
    session, artifact = opened(tmp_path / "out"), load_artifact(run / "best.collage")
    good = np.arange(8).reshape(1, 8) - 4
    for wrong in (50, -51, 2**40):
        with pytest.raises(Exception, match=rf"'ids': indices .* idx={wrong} must be within .* \[-50,49\]$"):
            session.run(None, {"ids": np.where(good == 0, wrong, good)})
        assert same(session.run(None, {"ids": good}), artifact.run(None, {"ids": good}))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 5, -6])
def test_floats_that_become_indices_are_refused_too(tmp_path: Path, opened: Open, wrong: float) -> None:
    export_context_model(placed(tmp_path / "run", of_a_float_index(), [("openvino", "default")]), tmp_path / "out")
    session = opened(tmp_path / "out")
    with pytest.raises(Exception, match=r"'i': indices element out of data bounds"):
        session.run(None, {"i": np.array([[0, wrong, -5]], np.float32)})
    assert session.run(None, {"i": np.array([[0, 4.75, -5.5]], np.float32)})[0].tolist()[0][1] == [-8, -9]


@pytest.mark.parametrize(
    "name", ["answer.json", "pipeline.json", "00_onnxruntime.onnx", "01_openvino.xml", "01_openvino.bin"]
)
def test_each_damaged_file_is_named_in_one_line(copy: Path, opened: Open, name: str) -> None:
    file = copy / "pieces" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert refusal(opened, copy).endswith(f"pieces/{name} was changed: export the answer again")
    file.unlink()
    assert f"pieces/{name} (No such file or directory): export the answer again" in refusal(opened, copy)
    file.symlink_to(os.devnull)
    assert f"cannot read {copy}/pieces/{name}" in refusal(opened, copy)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda m: m["machine"]["features"].append("avx4096"), "on a CPU with avx4096, which this one lacks: run "),
        (lambda m: m["machine"].update(architecture="vax"), "it was made for vax, this machine is "),
        (lambda m: m.update(threads=10**6), "it was made for 1000000 threads, this machine has "),
        (lambda m: m.update(schema=7), "it has schema 7, this version reads 1: export the answer again"),
        (lambda m: m["pieces"][1].update(library="torch"), "this build does not run pieces of torch: search with "),
        (lambda m: m["pieces"][1].update(files=["../x"]), "names '../x', which is no file of the answer: do not"),
        (lambda m: m["pieces"][1].update(files=["check.py"]), "the manifest has no digest of check.py"),
        (lambda m: m["tensors"]["x"].update(dtype="string"), "tensor 'x' is string"),
        (lambda m: m["tensors"]["x"].update(offset=2**40), "tensor 'x' lies outside the memory of its program"),
        (lambda m: m["tensors"]["x"].update(offset=None), "tensor 'x' has no place in the memory of its program"),
        (lambda m: m["tensors"]["x"].update(offset=4), "tensor 'x' begins at byte 4, which is no multiple of 64"),
        (lambda m: m["tensors"]["y"].update(offset=m["tensors"]["x"]["offset"]), "' share memory"),
        (lambda m: m.update(arena_bytes=2**60), "bytes, more than this machine has"),
        (lambda m: m["environment"].update(LD_PRELOAD="x.so"), "the manifest sets the variable 'LD_PRELOAD' to"),
        (lambda m: m["environment"].update(OMP_NUM_THREADS="1;x"), "sets the variable 'OMP_NUM_THREADS' to '1;x'"),
        (lambda m: m["pieces"][1].update(files=m["pieces"][0]["files"]), "two regions have one file, 00_onnxruntime"),
        (lambda m: m["pieces"][1].update(files=["./01_openvino.xml"]), "'./01_openvino.xml', which is no file of"),
        (lambda m: m["pieces"][0]["settings"].update(intra_op_num_threads="-1"), "has '-1' for intra_op_num_threads"),
        (lambda m: m["pieces"][0]["settings"].update(graph_optimization_level="x"), "no such optimisation level"),
        (lambda m: m.pop("limits"), "it lacks 'limits'"),
        (lambda m: m.update(limits=3), "it has a number in place of an object"),
        (lambda m: m["pieces"][1].update(settings="x"), "it has a text in place of an object"),
        (lambda m: m["pieces"][1].update(inputs=["x"]), "a piece of openvino has no tensor 'x': export the answer"),
        (lambda m: m.update(pieces=3), "it has a number in place of a list"),
    ],
)
def test_what_a_manifest_may_not_say_is_one_line(
    copy: Path, opened: Open, change: Callable[[dict[str, Any]], None], line: str
) -> None:
    rewrite(copy, change)
    assert line in refusal(opened, copy)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two outputs and its answer, in a piece for each operator."""
    place = tmp_path_factory.mktemp("forked")
    export_context_model(placed(place / "run", parse_graph(FORKED), MIXTURE), place / "out")
    return place / "out"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_one_line(forked: Path, tmp_path: Path, opened: Open, name: str) -> None:
    change, words = HOSTILE[name]
    folder = Path(shutil.copytree(forked, tmp_path / "out"))
    rewrite(folder, lambda manifest: change(manifest, manifest, manifest["pieces"]))
    assert re.search(words, refusal(opened, folder))


def declared(model: onnx.ModelProto, **types: Any) -> None:
    """Declare inputs and outputs of ``model`` otherwise: element type and sizes by name."""
    for value in (*model.graph.input, *model.graph.output):
        if value.name in types:
            value.CopyFrom(helper.make_tensor_value_info(value.name, *types[value.name]))


def swap(names: Any) -> None:
    names[0], names[1] = names[1], names[0]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda m: declared(m, y=(TensorProto.DOUBLE, [1, 4])), r"float64\[1, 4\] for 'y', which is float32\[1, 4\]"),
        (lambda m: declared(m, y=(TensorProto.INT8, [1, 4])), r"int8\[1, 4\] for 'y', which is float32\[1, 4\]"),
        (lambda m: declared(m, y=(TensorProto.INT32, [1, 4])), r"int32\[1, 4\] for 'y', which is float32\[1, 4\]"),
        (lambda m: declared(m, y=(TensorProto.STRING, [1, 4])), r"of another type\[1, 4\] for 'y'"),
        (lambda m: declared(m, z=(TensorProto.FLOAT, [1, 5])), r"float32\[1, 5\] for 'z', which is float32\[1, 4\]"),
        (lambda m: declared(m, z=(TensorProto.FLOAT, [4])), r"float32\[4\] for 'z', which is float32\[1, 4\]"),
        (lambda m: declared(m, x=(TensorProto.INT32, [1, 4])), r"int32\[1, 4\] for 'x', which is float32\[1, 4\]"),
        (lambda m: declared(m, x=(TensorProto.FLOAT, [2, 4])), r"float32\[2, 4\] for 'x', which is float32\[1, 4\]"),
        (lambda m: swap(m.graph.node[0].output), "node has 'z' in the place of 'y': export the answer again"),
        (lambda m: m.graph.node[0].input.append("x"), "has other inputs or outputs than its answer: export"),
    ],
)
def test_a_model_that_declares_other_tensors_than_its_answer_has_is_one_line(
    forked: Path, tmp_path: Path, opened: Open, change: Callable[[onnx.ModelProto], None], line: str
) -> None:
    """What ONNX Runtime allocates by the model, pieces write by the answer."""
    folder = Path(shutil.copytree(forked, tmp_path / "out"))
    model = onnx.load(folder / "model.onnx")
    change(model)
    onnx.save(model, folder / "model.onnx")
    assert re.search(line, refusal(opened, folder))


def test_a_folder_that_is_named_again_and_again_is_loaded_not_even_once(copy: Path, opened: Open) -> None:
    rewrite(copy, lambda index: index.update(folders=["."] * 300), "answer.json")
    assert "two programs have one folder, ." in refusal(opened, copy)


def test_a_piece_of_other_types_than_its_answer_says_is_one_line(forked: Path, tmp_path: Path, opened: Open) -> None:
    for k, dtype in enumerate(("float64", "int32", "float16")):
        folder = Path(shutil.copytree(forked, tmp_path / str(k)))
        rewrite(folder, lambda manifest, dtype=dtype: manifest["tensors"]["a"].update(dtype=dtype))  # type: ignore[misc]
        assert re.search(rf"a piece of onnxruntime has 'a' otherwise than as {dtype}", refusal(opened, folder))


@pytest.mark.parametrize("happens", ["chmod", "link", "touch", "copy", "chdir"])
def test_a_late_load_takes_files_of_the_same_content_wherever_the_process_is(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    export_context_model(with_fallback(tmp_path / "run", of_rows(2), of_rows("rows")), tmp_path / "out")
    late = tmp_path / "out" / "pieces" / "open" / "model.onnx"
    monkeypatch.chdir(tmp_path)
    session = opened(Path("out") / "model.onnx")
    match happens:
        case "chmod":
            late.chmod(0o444)
        case "link":
            os.link(late, tmp_path / "backup")
        case "touch":
            os.utime(late)
        case "copy":
            shutil.copy(late, tmp_path / "copy")
            (tmp_path / "copy").replace(late)
        case "chdir":
            monkeypatch.chdir("/")
    assert session.run(None, {"x": np.ones((5, 4), np.float32)})[0].shape == (5, 3)


def test_a_late_load_refuses_another_content_of_the_same_times(tmp_path: Path, opened: Open) -> None:
    with folder_in_memory() as folder:
        export_context_model(with_fallback(tmp_path / "run", of_rows(2), of_rows("rows")), folder / "out")
        session = opened(folder / "out")
        replace_unseen(folder / "out" / "pieces" / "open" / "model.onnx", b"Relu", b"Sqrt")
        with pytest.raises(Exception, match=r"open/model\.onnx was changed: export the answer again"):
            session.run(None, {"x": np.ones((5, 4), np.float32)})


def test_no_json_and_deep_json_are_one_line(copy: Path, opened: Open) -> None:
    for text, line in (("{", "it is no JSON at byte 1"), ("[" * 10**5, "nested too deeply"), ("{} x", "at byte 3")):
        (copy / "pieces" / "answer.json").write_text(text)
        model = onnx.load(copy / "model.onnx")
        notes = next(one for one in model.graph.node[0].attribute if one.name == "notes")
        notes.s = hashlib.sha256(text.encode()).hexdigest().encode()
        onnx.save(model, copy / "model.onnx")
        assert line in refusal(opened, copy)


def test_a_model_from_memory_says_where_its_file_would_be(mixture: Path, opened: Open) -> None:
    model = (mixture / "out" / "model.onnx").read_bytes()
    with pytest.raises(Exception, match=r"needs the session option ep\.context_file_path"):
        opened(model)
    session = opened(model, ep_file_path=str(mixture / "out" / "model.onnx"))
    (x,) = images(1)
    assert session.run(None, {"x": x})[0].shape == (1, 10)


def test_nodes_of_other_providers_are_left_to_them(copy: Path, opened: Open) -> None:
    model = onnx.load(copy / "model.onnx")
    source = next(one for one in model.graph.node[0].attribute if one.name == "source")
    source.s = b"Other"
    onnx.save(model, copy / "model.onnx")
    assert "EPContext" in refusal(opened, copy)


def test_an_output_that_nobody_reads_is_computed_for_nobody(tmp_path: Path, opened: Open) -> None:
    made = Builder("net")
    x = made.input("x", (2, 4))
    model = made.model(made.op("Relu", x, output="y"), made.op("Neg", x, output="z"))
    export_context_model(alone(tmp_path / "run", model, "onnxruntime"), tmp_path / "out")
    session = opened(tmp_path / "out")
    x = np.ones((2, 4), np.float32)
    assert session.run(["z"], {"x": x})[0].tolist() == (-x).tolist()
    fewer = onnx.load(tmp_path / "out" / "model.onnx")
    fewer.graph.value_info.append(fewer.graph.output.pop(0))
    onnx.save(fewer, tmp_path / "out" / "model.onnx")
    assert opened(tmp_path / "out").run(None, {"x": x})[0].tolist() == (-x).tolist()
