"""The execution provider CollageEvo: where its shared library is, and its name in ONNX Runtime.

    onnxruntime.register_execution_provider_library(get_ep_name(), get_library_path())
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]

_LIBRARY = Path(__file__).resolve().parent / "libonnxruntime_ep_collage.so"
_OPENVINO = "COLLAGE_EVO_OPENVINO"


def get_library_path() -> str:
    """Path of the shared library, for ``register_execution_provider_library``.

    If the package openvino is installed, the environment variable ``COLLAGE_EVO_OPENVINO`` names the folder of its
    libraries afterwards, unless it is set already: the provider loads OpenVINO from there.

    Raises:
        FileNotFoundError: the package was installed without its library.
    """
    if not _LIBRARY.exists():
        raise FileNotFoundError(f"{_LIBRARY} is missing: pip install ./plugins/onnxruntime_ep")
    spec = importlib.util.find_spec("openvino")
    if spec is not None and spec.origin:
        os.environ.setdefault(_OPENVINO, str(Path(spec.origin).parent / "libs"))
    return str(_LIBRARY)


def get_ep_name() -> str:
    """Name of the provider, as ``OrtEpDevice.ep_name`` has it."""
    return "CollageEvo"


def get_ep_names() -> list[str]:
    """Names of all providers in the library."""
    return [get_ep_name()]
