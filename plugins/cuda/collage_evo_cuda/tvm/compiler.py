"""Compilation of CUDA C to machine code (cubin) for the driver. Needs no GPU.

Uses NVRTC from pip (``nvidia-cuda-nvrtc`` and headers, the extra ``tvm``), or an installed toolkit's NVRTC or nvcc.
TVM's own compilation always enables fast approximations of division, exp and tanh; a float32 variant must not.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collage_evo.errors import UnavailableError
from collage_evo.extras import install
from collage_evo_cuda import PACKAGE
from collage_evo_cuda.requirements import lacks_gpu

_NVRTC, _RUNTIME = "libnvrtc.so.13", "libcudart.so.13"
_HEADERS = ("cuda_fp16.h", "crt/mma.h", "cccl/cuda/std/cstdint")
"""Headers that generated code includes, of nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl."""
_LIBRARY_FOLDERS = ("lib64", "lib")


def mend() -> str:
    """Text on how to install a compiler of CUDA C."""
    return f"{install('tvm', PACKAGE)}, or install a CUDA 13 toolkit and set CUDA_PATH"


@dataclass(frozen=True)
class Nvrtc:
    """NVIDIA's compiler as a library.

    Attributes:
        library: its file.
        includes: folders of the headers that generated code may include.
    """

    library: Path
    includes: tuple[Path, ...]

    def compile(self, source: str, arch: str) -> bytes:
        """Machine code for ``arch``, such as ``sm_90``.

        Raises:
            ValueError: ``source`` does not compile; the message is the compiler's first error.
        """
        nvrtc = ctypes.CDLL(str(self.library))
        program = ctypes.c_void_p()
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        includes = [f"--include-path={folder}" for folder in self.includes]
        options = [f"--gpu-architecture={arch}", "--std=c++17", "-default-device", "--device-int128", *includes]
        arguments = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        try:
            if nvrtc.nvrtcCompileProgram(program, len(options), arguments) != 0:
                log = _taken(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
                raise ValueError(f"NVRTC: {_complaint(log.decode(errors='replace'))}")
            return _taken(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@dataclass(frozen=True)
class Nvcc:
    """NVIDIA's compiler as a program."""

    program: Path

    def compile(self, source: str, arch: str) -> bytes:
        """As :meth:`Nvrtc.compile`."""
        with tempfile.TemporaryDirectory() as folder:
            code, binary = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
            code.write_text(source)
            command = [str(self.program), "--cubin", f"-arch={arch}", "-std=c++17", "-o", str(binary), str(code)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ValueError(f"nvcc: {_complaint(done.stderr)}")
            return binary.read_bytes()


@cache
def find_compiler() -> Nvrtc | Nvcc | None:
    """The first compiler that is complete; None if there is none."""
    for folder in _toolkits():
        include = folder / "include"
        library = _library(folder, _NVRTC)
        if library and all((include / header).exists() for header in _HEADERS):
            return Nvrtc(library, (include, include / "cccl"))
    for program in (*(str(folder / "bin" / "nvcc") for folder in _toolkits()), "nvcc"):
        path = shutil.which(program)
        if path:
            return Nvcc(Path(path))
    return None


def compile_kernels(source: str, arch: str) -> bytes:
    """``source`` as machine code for ``arch``.

    Raises:
        UnavailableError: there is no compiler; the message says what to install.
        ValueError: ``source`` does not compile.
    """
    compiler = find_compiler()
    if compiler is None:
        raise UnavailableError(f"no CUDA compiler: {mend()}")
    return compiler.compile(source, arch)


def unusable() -> str:
    """Why kernels can be neither compiled nor loaded here, whatever the GPU; empty if they can."""
    if find_compiler() is None:
        return f"TVM needs a CUDA compiler: {mend()}"
    if find_runtime() is None and not _loads(_RUNTIME):
        return f"TVM needs {_RUNTIME}: {mend()}"
    return lacks_gpu(oldest_served(), "the CUDA compiler here")


@cache
def oldest_served() -> tuple[int, int]:
    """The lowest compute capability that the compiler supports; (0, 0) where only compiling would show it."""
    compiler = find_compiler()
    if not isinstance(compiler, Nvrtc):
        return 0, 0
    nvrtc, count = ctypes.CDLL(str(compiler.library)), ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    served = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(served)
    major, minor = divmod(min(served), 10)
    return major, minor


@cache
def find_runtime() -> Path | None:
    """CUDA's runtime library in the folders of pip or a toolkit; the system's loader may find another."""
    return next(filter(None, (_library(folder, _RUNTIME) for folder in _toolkits())), None)


@cache
def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _toolkits() -> Iterator[Path]:
    """Folders with ``include`` and libraries: pip's first, since its parts are of one version."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder) / "cu13"
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    yield Path("/usr/local/cuda")


def _library(folder: Path, name: str) -> Path | None:
    return next((path for part in _LIBRARY_FOLDERS if (path := folder / part / name).exists()), None)


def _taken(size_of: Callable[..., int], content_of: Callable[..., int], program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    content = ctypes.create_string_buffer(size.value)
    content_of(program, content)
    return content.raw


def _complaint(log: str) -> str:
    """The first line that is an error, else the first line."""
    lines: Sequence[str] = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "it gives no reason")
