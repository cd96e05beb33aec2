"""The execution provider CollageEvo: where its shared library is, and its name in ONNX Runtime.

    onnxruntime.register_execution_provider_library(get_ep_name(), get_library_path())
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]

_LIBRARY = Path(__file__).resolve().parent / "libonnxruntime_ep_collage.so"


def get_library_path() -> str:
    """Path of the shared library, for ``register_execution_provider_library``.

    Afterwards the environment variables ``COLLAGE_EVO_OPENVINO`` and ``COLLAGE_EVO_TVM`` name the folders from which
    the provider loads these libraries, if their packages are installed and the variables are not set already.

    Raises:
        FileNotFoundError: the package was installed without its library.
    """
    if not _LIBRARY.exists():
        raise FileNotFoundError(f"{_LIBRARY} is missing: pip install ./plugins/onnxruntime_ep")
    if package := _folder("openvino"):
        os.environ.setdefault("COLLAGE_EVO_OPENVINO", str(package / "libs"))
    if package := _folder("tvm_ffi"):
        os.environ.setdefault("COLLAGE_EVO_TVM", str(package.parent))
    return str(_LIBRARY)


def get_ep_name() -> str:
    """Name of the provider, as ``OrtEpDevice.ep_name`` has it."""
    return "CollageEvo"


def get_ep_names() -> list[str]:
    """Names of all providers in the library."""
    return [get_ep_name()]


def _folder(package: str) -> Path | None:
    """Folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None
