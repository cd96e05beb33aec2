"""The compiler, and ONNX Runtime's headers, for tests that need a library or program of C++."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
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
    """``source`` compiled by gcc into ``to``, or as an earlier run compiled it.

    Skips where gcc or ONNX Runtime's headers are missing.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    include = module_at(PLUGIN / "headers.py").find_headers()
    if compiler is None or include is None:
        missing = "no C++ compiler" if compiler is None else f"no headers: python {PLUGIN / 'headers.py'} brings them"
        pytest.skip(missing)
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-I", str(include)]
    key = hashlib.sha256(" ".join([compiler, *flags, *options]).encode())
    for file in sorted(source.parent.iterdir()):
        key.update(file.read_bytes())
    known = PLUGIN / "build" / "tests" / key.hexdigest()
    if not known.exists():
        known.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, *flags, str(source), "-o", str(to), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shutil.copy(to, known)
    shutil.copy(known, to)
    return to
