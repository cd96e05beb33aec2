"""Emulation of a lesser processor for this process: CPUID hides features beyond a level from libraries.

ONNX Runtime and ncnn have no setting for it. Where the kernel can make CPUID fault (Intel since Ivy Bridge, most
virtual machines on these), a signal handler answers in the processor's place. Needs gcc.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.hardware.levels import LEVELS, SWITCH, goes_beyond
from collage_evo.hardware.private import own_temporary

_SOURCE = Path(__file__).with_name("cpuid.c")
_EAX, _EBX, _ECX, _EDX = range(4)
_BITS = {
    "avx512f": (0, _EBX, 16), "avx512dq": (0, _EBX, 17), "avx512ifma": (0, _EBX, 21), "avx512cd": (0, _EBX, 28),
    "avx512bw": (0, _EBX, 30), "avx512vl": (0, _EBX, 31),
    "avx512vbmi": (0, _ECX, 1), "avx512_vbmi2": (0, _ECX, 6), "avx512_vnni": (0, _ECX, 11),
    "avx512_bitalg": (0, _ECX, 12), "avx512_vpopcntdq": (0, _ECX, 14),
    "avx512_vp2intersect": (0, _EDX, 8), "amx_bf16": (0, _EDX, 22), "avx512_fp16": (0, _EDX, 23),
    "amx_tile": (0, _EDX, 24), "amx_int8": (0, _EDX, 25),
    "avx_vnni": (1, _EAX, 4), "avx512_bf16": (1, _EAX, 5), "amx_fp16": (1, _EAX, 21), "avx_ifma": (1, _EAX, 23),
    "avx_vnni_int8": (1, _EDX, 4), "avx_ne_convert": (1, _EDX, 5), "amx_complex": (1, _EDX, 8),
    "avx_vnni_int16": (1, _EDX, 10), "avx10": (1, _EDX, 19),
}  # fmt: skip
"""Subleaf of CPUID's leaf 7, register and bit by feature (Intel, Software Developer's Manual, volume 2A)."""


def hold() -> bool:
    """Hide features beyond the level in ``SWITCH`` from this process; returns whether that worked.

    Threads and forked processes inherit it, other processes call it themselves (``collage_evo`` does on import).
    Other handlers of the same signal get all other faults.
    """
    level = os.environ.get(SWITCH, "")
    if level not in LEVELS:
        return False
    masks = (ctypes.c_uint32 * 8)()
    for feature, (subleaf, register, bit) in _BITS.items():
        if goes_beyond(feature, level):
            masks[4 * subleaf + register] |= 1 << bit
    library = _library()
    return library is not None and library.hide(masks) == 0


@cache
def _library() -> ctypes.CDLL | None:
    """The handler, compiled once for all processes; None where that fails."""
    source = _SOURCE.read_bytes()
    try:
        library = own_temporary() / f"cpuid-{hashlib.sha256(source).hexdigest()[:16]}.so"
        if not library.exists():
            compiled = library.with_suffix(f".{os.getpid()}")
            command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(compiled), str(_SOURCE)]
            subprocess.run(command, check=True, capture_output=True)
            compiled.replace(library)
        return ctypes.CDLL(str(library))
    except (OSError, InputError, subprocess.CalledProcessError):
        return None
