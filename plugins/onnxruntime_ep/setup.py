"""Build of the shared library: one C++ file, which needs gcc or clang and ONNX Runtime's headers."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# An isolated build has not this folder in its path.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from headers import fetch_headers, find_headers

LIBRARY = "libonnxruntime_ep_collage.so"


class Build(build_ext):
    """Compiles a plain shared library, which is no module of Python's."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")[:-1], LIBRARY))

    def build_extension(self, ext: Extension) -> None:
        ext.include_dirs = [str(find_headers() or fetch_headers())]
        super().build_extension(ext)


class Wheel(bdist_wheel):
    """A wheel for every Python, as the library uses none."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": Build, "bdist_wheel": Wheel},
    ext_modules=[
        Extension(
            "onnxruntime_ep_collage.library",
            ["src/provider.cpp"],
            depends=[str(path) for path in sorted(Path("src").glob("*.hpp"))],
            extra_compile_args=["-std=c++17", "-O2", "-g0", "-Wall", "-Wextra", "-fvisibility=hidden"],
            extra_link_args=["-Wl,--exclude-libs,ALL", "-ldl", "-pthread"],
            language="c++",
        )
    ],
)
