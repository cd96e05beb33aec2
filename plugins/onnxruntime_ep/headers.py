"""ONNX Runtime's C headers for the build: a folder that is here already, or those of a package of the npm registry.

The wheels of ONNX Runtime have no headers. One package of the npm registry has recent ones, a plug-in for Unity: they
are ONNX Runtime's own files, under its MIT licence. Only the build needs them.

Run as a program, this prints the folder, which it downloads if necessary.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST = 23
"""Version of the interface: that of ONNX Runtime 1.23."""
_PACKAGE = "com.github.asus4.onnxruntime@0.4.9"
_INSIDE = "ios-arm64/onnxruntime.framework/Headers/"
_FILES = ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")
_CACHE = HERE / "build" / "include"


def find_headers() -> Path | None:
    """A folder of headers on this machine.

    That is ``ORT_INCLUDE``, an unpacked release in ``ONNXRUNTIME_HOME``, the system's, or what :func:`fetch_headers`
    downloaded.
    """
    home = Path(os.environ.get("ONNXRUNTIME_HOME", "/usr"))
    named = [Path(os.environ["ORT_INCLUDE"])] if "ORT_INCLUDE" in os.environ else []
    places = (*named, home / "include", home / "include" / "onnxruntime", _CACHE)
    return next((place for place in places if _version(place) >= OLDEST), None)


def fetch_headers() -> Path:
    """Download the headers with npm.

    Raises:
        FileNotFoundError: npm is not installed.
        RuntimeError: npm fails.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            "no headers of ONNX Runtime 1.23 or later: set ORT_INCLUDE to the folder of onnxruntime_c_api.h, "
            "or install npm, with which the build downloads them"
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, _PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"npm pack {_PACKAGE} failed: {done.stderr.strip()}")
        (archive,) = Path(folder).iterdir()
        found = Path(folder) / "include"
        found.mkdir()
        with tarfile.open(archive) as files:
            for file in files:
                if _INSIDE in file.name and file.name.endswith(".h") and (content := files.extractfile(file)):
                    (found / Path(file.name).name).write_bytes(content.read())
        _CACHE.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(_CACHE, ignore_errors=True)
        shutil.copytree(found, _CACHE)
    if _version(_CACHE) < OLDEST:
        raise RuntimeError(f"{_PACKAGE} has no headers of ONNX Runtime 1.23 or later")
    return _CACHE


def _version(folder: Path) -> int:
    """Version of the interface that the headers describe; 0 without the plug-in interface."""
    if not all((folder / name).exists() for name in _FILES):
        return 0
    match = re.search(r"#define ORT_API_VERSION (\d+)", (folder / _FILES[0]).read_text())
    return int(match[1]) if match else 0


if __name__ == "__main__":
    print(find_headers() or fetch_headers())
