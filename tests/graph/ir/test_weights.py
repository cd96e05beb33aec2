"""Models whose weights are apart from them are the same models, for all that read, run, write and compile them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from collage_evo.errors import InputError
from collage_evo.graph.ir import weights
from collage_evo.graph.ir.weights import (
    array_of,
    inlined,
    is_placed,
    light,
    saved_near_weights,
    weight_bytes,
    weight_files,
)
from collage_evo.graph.load import files
from collage_evo.graph.load.files import digest, read_model, save_linked, save_model
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime.artifact import load_artifact
from collage_evo.runtime.session import Session
from tests.cli.commands import collage
from tests.runtime.helpers import TARGET, alternating
from tests.support.models import tiny_transformer
from tests.support.quick import QUICK, options


@pytest.fixture(autouse=True)
def all_are_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "HEAVY_BYTES", 0)
    monkeypatch.setattr(weights, "LARGE_BYTES", 64)


def placed(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer if is_placed(tensor)]


def test_a_light_model_gives_the_same_outputs_and_becomes_the_same_message_again() -> None:
    model = tiny_transformer()
    made, feeds = light(model), random_inputs(model, seed=1)
    assert placed(made)
    assert len(made.SerializeToString()) < len(model.SerializeToString()) / 2
    assert inlined(made) == model
    for one, other in zip(model.graph.initializer, made.graph.initializer, strict=True):
        np.testing.assert_array_equal(array_of(other), numpy_helper.to_array(one))
    np.testing.assert_array_equal(reference_outputs(made, feeds)[0], reference_outputs(model, feeds)[0])
    assert digest(made) == digest(model)
    assert light(made) == made


def test_equal_weights_are_written_once_and_others_of_the_same_name_apart() -> None:
    model = tiny_transformer()
    before = light(model)
    files = set(weight_files().directory.iterdir())
    assert light(model) == before
    assert set(weight_files().directory.iterdir()) == files
    tensor = model.graph.initializer[model_index(model)]
    changed = numpy_helper.to_array(tensor).copy()
    changed.flat[0] += 1
    tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    assert inlined(light(model)) == model
    assert digest(light(model)) != digest(before)


def model_index(model: onnx.ModelProto) -> int:
    """The position of a weight that is placed."""
    names = placed(light(model))
    return next(index for index, one in enumerate(model.graph.initializer) if one.name == names[0])


def test_it_is_saved_with_its_data_and_read_without_a_copy(tmp_path: Path) -> None:
    model = tiny_transformer()
    save_model(model, tmp_path / "a.onnx")
    save_model(light(model), tmp_path / "b.onnx", in_one=True)
    assert (tmp_path / "a.onnx.data").exists()
    assert not (tmp_path / "b.onnx.data").exists()
    read = read_model(tmp_path / "a.onnx")
    assert placed(read)
    assert inlined(read) == onnx.load(tmp_path / "b.onnx") == model
    with saved_near_weights(read) as path:
        session = onnxruntime.InferenceSession(str(path))
    feeds = random_inputs(model, seed=1)
    np.testing.assert_allclose(session.run(None, feeds)[0], reference_outputs(model, feeds)[0], rtol=1e-3, atol=1e-5)
    (tmp_path / "a.onnx.data").write_bytes(b"short")
    with pytest.raises(InputError, match="resume the run"):
        read_model(tmp_path / "a.onnx")


def test_models_that_share_weights_share_files(tmp_path: Path) -> None:
    model = light(tiny_transformer())
    save_linked(model, tmp_path / "a.onnx")
    save_linked(read_model(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    sizes = {file.stat().st_ino: file.stat().st_size for file in tmp_path.glob("*.onnx.data/*")}
    assert sum(sizes.values()) == sum(weight_bytes(t) for t in model.graph.initializer if is_placed(t))
    assert inlined(read_model(tmp_path / "b.onnx")) == tiny_transformer()
    save_linked(light(tiny_transformer(seed=1)), tmp_path / "b.onnx")
    assert inlined(read_model(tmp_path / "b.onnx")) == tiny_transformer(seed=1)
    assert inlined(read_model(tmp_path / "a.onnx")) == tiny_transformer()


def test_weights_in_files_of_their_own_are_shared_by_models_that_differ_in_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "APART_BYTES", 200)
    model = light(tiny_transformer())
    changed = light(tiny_transformer())
    name = placed(changed)[0]
    place = next(index for index, one in enumerate(changed.graph.initializer) if one.name == name)
    array = array_of(changed.graph.initializer[place]) + 1
    changed.graph.initializer[place].CopyFrom(numpy_helper.from_array(array, name))
    save_model(model, tmp_path / "a.onnx", apart=True)
    save_model(changed, tmp_path / "b.onnx", apart=True)
    assert inlined(read_model(tmp_path / "a.onnx")) == inlined(model)
    assert inlined(read_model(tmp_path / "b.onnx")) == inlined(changed)
    own = {name: {file.stat().st_ino for file in tmp_path.glob(f"{name}.data.*")} for name in ("a.onnx", "b.onnx")}
    assert len(own["a.onnx"]) == len(own["b.onnx"]) > 1
    assert len(own["a.onnx"] - own["b.onnx"]) == 1
    feeds = random_inputs(model, seed=1)
    session = onnxruntime.InferenceSession(str(tmp_path / "b.onnx"))
    np.testing.assert_allclose(
        session.run(None, feeds)[0], reference_outputs(changed, feeds)[0], rtol=1e-3, atol=1e-5
    )


def test_weights_elsewhere_than_beside_the_model_are_refused(tmp_path: Path) -> None:
    save_linked(light(tiny_transformer()), tmp_path / "a.onnx")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.onnx").rename(tmp_path / "sub" / "a.onnx")
    model = onnx.load(tmp_path / "sub" / "a.onnx", load_external_data=False)
    for tensor in filter(uses_external_data, model.graph.initializer):
        tensor.external_data[0].value = f"../{tensor.external_data[0].value}"
    onnx.save(model, tmp_path / "sub" / "a.onnx")
    with pytest.raises(InputError, match="not its own"):
        read_model(tmp_path / "sub" / "a.onnx")


def test_weights_under_a_byte_and_in_fields_of_their_own_stay_in_the_message() -> None:
    packed = helper.make_tensor("packed", TensorProto.INT4, [400], [1] * 400)
    fields = helper.make_tensor("fields", TensorProto.FLOAT, [400], [1.0] * 400)
    assert not placed(light(helper.make_model(helper.make_graph([], "constants", [], [], [packed, fields]))))


def test_a_user_s_file_with_external_data_becomes_light(tmp_path: Path) -> None:
    model = tiny_transformer()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=64)
    loaded = ModelFile(str(tmp_path / "m.onnx")).load().original
    assert placed(loaded)
    assert inlined(loaded).graph.initializer == tiny_transformer().graph.initializer


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "tvm"])
def test_a_small_region_of_a_heavy_model_has_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    model = tiny_transformer()
    monkeypatch.setattr(weights, "HEAVY_BYTES", weights.all_weight_bytes(model))  # no region has as many
    feeds = random_inputs(model, seed=1)
    with Session([alternating(light(model), tmp_path, (backend, "onnxruntime"))], TARGET) as session:
        made = session.run(None, feeds)[0]
    np.testing.assert_allclose(made, reference_outputs(model, feeds)[0], rtol=1e-3, atol=1e-5)


def test_a_small_part_of_a_heavy_model_is_known_by_what_its_weights_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    one, files = light(tiny_transformer()), weight_files()
    elsewhere = onnx.ModelProto()
    elsewhere.CopyFrom(one)
    for tensor in filter(is_placed, elsewhere.graph.initializer):
        tensor.external_data[0].value = files.adopt(files.directory / tensor.external_data[0].value)
    monkeypatch.setattr(weights, "HEAVY_BYTES", 2**26)
    assert digest(elsewhere) == digest(one)


KILLED = """
import os
from collage_evo.graph.ir.weights import weight_files
print(weight_files().directory, flush=True)
os._exit(9)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    here = {**os.environ, "TMPDIR": str(tmp_path), "COLLAGE_EVO_TMPDIR": str(tmp_path)}

    def left(program: str) -> Path:
        done = subprocess.run([sys.executable, "-c", program], env=here, capture_output=True, text=True, check=False)
        return Path(done.stdout.strip())

    first = left(KILLED)
    assert first.is_dir()
    second = left(KILLED.replace("os._exit(9)", ""))
    assert not first.exists()
    assert not second.exists()
    assert not list(second.parent.glob("collage_evo-weights*"))


@pytest.mark.slow
def test_a_run_on_such_a_model_is_right_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_transformer(length=4)
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "sitecustomize.py").write_text(
        "import collage_evo.graph.ir.weights as weights\nweights.HEAVY_BYTES, weights.LARGE_BYTES = 0, 64\n"
    )
    settings = {**QUICK, "backends.use": ["onnxruntime", "openvino"], "accuracy.budget": 0.02}
    settings["accuracy.int8_without_data"] = True
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    done = collage("run", "m.onnx", "--out", "out", *options(settings), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "work" / "original.onnx.data").is_dir()
    assert not list((tmp_path / "t").glob("collage_evo-*/collage_evo-weights*/*"))
    feeds = random_inputs(model, seed=3)
    with load_artifact(tmp_path / "out" / "best.collage") as session:
        made = session.run(None, feeds)[0]
    expected = reference_outputs(model, feeds)[0]
    assert float(np.linalg.norm(made - expected) / np.linalg.norm(expected)) < 0.02


def test_a_light_model_whose_files_have_several_links_is_normalised_as_any(tmp_path: Path) -> None:
    model = tiny_transformer()
    plain_nodes = [node.op_type for node in normalise(model).graph.node]
    save_linked(light(model), tmp_path / "model.onnx")
    linked = read_model(tmp_path / "model.onnx")
    assert all(path.stat().st_nlink > 1 for path in (tmp_path / "model.onnx.data").iterdir())
    found = normalise(linked)
    assert placed(found)
    assert [node.op_type for node in found.graph.node] == plain_nodes
