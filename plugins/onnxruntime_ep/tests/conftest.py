"""The library, compiled once for all tests, and registered with this process's ONNX Runtime."""

from __future__ import annotations

import importlib
import shutil
import sys
from types import ModuleType

import pytest
from ep_build import PLUGIN, compiled


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
