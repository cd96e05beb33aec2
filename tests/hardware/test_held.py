"""Held to a level, libraries that ask the processor itself see no more than it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from collage_evo.hardware.held import _BITS
from collage_evo.hardware.levels import LEVELS, SWITCH, goes_beyond
from collage_evo.hardware.processor import this_machine

ASK = """
import collage_evo, faulthandler, json, threading
{other}
found = {{}}
def ask():
    from numpy._core._multiarray_umath import __cpu_features__ as features
    found.update(features)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
from collage_evo.hardware.processor import this_machine
print(json.dumps([found["AVX2"], found["AVX512F"], this_machine().cpu]))
"""
"""NumPy asks CPUID when it is imported; what runs in a thread is held as well."""


def asked(level: str, other: str = "") -> tuple[bool, bool, str]:
    command = [sys.executable, "-c", ASK.format(other=other)]
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment |= {SWITCH: level} if level else {}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    avx2, avx512, cpu = json.loads(done.stdout)
    return avx2, avx512, cpu


@pytest.mark.skipif(bool(this_machine().lacks(frozenset({"avx512f"}))), reason="nothing to hide on this processor")
@pytest.mark.parametrize("other", ["", "faulthandler.enable()", "import tvm_ffi"])
def test_a_library_that_asks_the_processor_sees_the_level_whoever_else_handles_faults(other: str) -> None:
    assert asked("")[:2] == (True, True)
    avx2, avx512, cpu = asked("avx2", other)
    assert avx2
    if cpu.endswith("but for ONNX Runtime and ncnn"):
        pytest.skip("CPUID cannot fault here")
    assert not avx512


def test_a_crash_is_still_one_with_a_traceback() -> None:
    code = "import collage_evo, ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, SWITCH: "avx2"}, capture_output=True, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1


@pytest.mark.parametrize("level", LEVELS)
def test_all_that_goes_beyond_a_level_is_hidden(level: str) -> None:
    beyond = {one for one in this_machine().features if goes_beyond(one, level)}
    assert beyond <= _BITS.keys(), "add the feature's bit"
