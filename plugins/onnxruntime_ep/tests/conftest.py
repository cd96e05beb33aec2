"""The library, compiled once for all tests, and registered with this process's ONNX Runtime."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PLUGIN = Path(__file__).resolve().parents[1]


def module_at(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(source: Path, to: Path, *options: str) -> Path:
    """``source`` compiled by gcc; skips where gcc or ONNX Runtime's headers are missing."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    include = module_at(PLUGIN / "headers.py").find_headers()
    if compiler is None or include is None:
        missing = "no C++ compiler" if compiler is None else f"no headers: python {PLUGIN / 'headers.py'} brings them"
        pytest.skip(missing)
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(include), str(source), "-o", str(to)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The Python package with its compiled library, from a folder of its own."""
    place = tmp_path_factory.mktemp("package") / "onnxruntime_ep_collage"
    shutil.copytree(PLUGIN / "onnxruntime_ep_collage", place, ignore=shutil.ignore_patterns("*.so"))
    options = ("-fPIC", "-shared", "-fvisibility=hidden", "-ldl", "-pthread")
    compiled(PLUGIN / "src" / "provider.cpp", place / "libonnxruntime_ep_collage.so", *options)
    sys.path.insert(0, str(place.parent))
    sys.modules.pop("onnxruntime_ep_collage", None)
    try:
        return importlib.import_module("onnxruntime_ep_collage")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="session")
def provider(package: ModuleType) -> str:
    """The name of the provider, which sessions of this process can use."""
    import onnxruntime

    onnxruntime.register_execution_provider_library(package.get_ep_name(), package.get_library_path())
    return str(package.get_ep_name())
