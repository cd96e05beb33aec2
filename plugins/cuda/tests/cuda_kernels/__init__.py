"""Generated CUDA C run on the host: stand-ins for CUDA's libraries, and a compiler of kernels for them.

Real: TVM's code generation, its CUDA runtime and everything of ours. Stands in: ``libcuda.so.1``,
``libcudart.so.13``, and the kernels, which g++ compiles with ``include/kernel.h``. What is shown is what kernels
compute and how they are called; nothing of their speed, and no fault that comes of threads running in another order.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
_KERNEL = re.compile(r'^extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\((.*)\) \{$', re.MULTILINE)
_MEETING = ("__syncthreads", "__syncwarp", "__shfl", "_sync(")


def build_libraries(folder: Path) -> None:
    """Compile the stand-ins into ``folder``, which is to lead the loader's path."""
    script = f"-Wl,--version-script={HERE / 'libcudart.map'}"
    for source, name, more in (("libcudart.cpp", "libcudart.so.13", (script,)), ("libcuda.cpp", "libcuda.so.1", ())):
        _compile(HERE / source, folder / name, f"-Wl,-soname,{name}", *more)


class HostCompiler:
    """Compiles CUDA C for the stand-ins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def compile(self, source: str, arch: str) -> bytes:
        """A shared library with a function ``run_NAME`` for each kernel."""
        source = re.sub(r"extern __shared__ (.*?)(\w+)\[\];", r"static \1\2[232448];", source)
        source = re.sub(r"__shared__ (alignas\(\d+\)) ", r"\1 static ", source)
        heads = list(_KERNEL.finditer(source))
        ends = [head.start() for head in heads[1:]] + [len(source)]
        runs = []
        for head, end in zip(heads, ends, strict=True):
            meets = any(word in source[head.end() : end] for word in _MEETING)
            given = "const emulated::Launch* launch, void** arguments"
            call = f"emulated::run({head[1]}, launch, arguments, {str(meets).lower()})"
            runs.append(f'extern "C" void run_{head[1]}({given}) {{ {call}; }}')
        code, made = self._folder / "kernels.cpp", self._folder / "kernels.so"
        code.write_text("\n".join(('#include "kernel.h"', source, *runs)))
        _compile(code, made, f"-I{HERE / 'include'}", "-w")
        return made.read_bytes()


def _compile(source: Path, library: Path, *options: str) -> None:
    command = ["g++", "-std=c++17", "-O0", "-shared", "-fPIC", *options, str(source), "-o", str(library)]
    subprocess.run(command, check=True)
