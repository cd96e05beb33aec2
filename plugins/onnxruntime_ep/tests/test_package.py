"""The package says where the library is, and programs in C++ use it with nothing of Python's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime as ort
import pytest
from ep_build import PLUGIN, compiled

from collage_evo.export.context_model import export_context_model
from collage_evo.hardware.processor import level
from tests.export.runs import placed, usable
from tests.support.models import tiny_convnet


def test_the_package_names_its_provider_and_the_libraries_of_installed_packages(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLLAGE_EVO_OPENVINO", raising=False)
    assert package.get_ep_names() == [package.get_ep_name()] == ["CollageEvo"]
    assert Path(package.get_library_path()).is_absolute()
    if usable("openvino"):
        assert list(Path(os.environ["COLLAGE_EVO_OPENVINO"]).glob("libopenvino_c.so*"))
    monkeypatch.setenv("COLLAGE_EVO_OPENVINO", "/mine")
    package.get_library_path()
    assert os.environ["COLLAGE_EVO_OPENVINO"] == "/mine"


def test_a_package_without_its_library_says_how_to_get_it(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(package, "_LIBRARY", tmp_path / "gone.so")
    with pytest.raises(FileNotFoundError, match=r"gone\.so is missing: pip install"):
        package.get_library_path()


@pytest.mark.skipif(usable("onnxruntime", "openvino") != ["onnxruntime", "openvino"], reason="needs both libraries")
def test_a_program_in_c_plus_plus_gives_the_same_and_says_where_openvino_is_missing(
    package: ModuleType, tmp_path: Path
) -> None:
    library = tmp_path / "libonnxruntime.so.1"
    library.symlink_to(next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")))
    program = compiled(PLUGIN / "examples" / "run.cpp", tmp_path / "run", str(library), f"-Wl,-rpath,{tmp_path}")
    engines = [("onnxruntime", "default"), ("openvino", "default")]
    export_context_model(placed(tmp_path / "answer", tiny_convnet(), engines), tmp_path / "out")
    samples = tmp_path / "out" / "pieces" / "samples"
    np.load(samples / "0.in.0.npy").tofile(tmp_path / "in")
    command = [str(program), package.get_library_path(), str(tmp_path / "out" / "model.onnx")]
    command += [str(tmp_path / "in"), str(tmp_path / "made"), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found, expected = np.fromfile(tmp_path / "made", np.float32), np.load(samples / "0.out.0.npy").ravel()
    assert np.allclose(found, expected, atol=1e-5) if level() else np.array_equal(found, expected)
    nowhere = {**os.environ, "COLLAGE_EVO_OPENVINO": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=nowhere)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the answer needs OpenVINO, whose libopenvino_c.so was not found" in line
