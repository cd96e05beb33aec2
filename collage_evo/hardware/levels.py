"""Levels to which an x86 processor can be held, to test the behaviour of a lesser one."""

from __future__ import annotations

SWITCH = "COLLAGE_EVO_PROCESSOR"
"""The environment variable that names the level."""

_AVX512 = frozenset({"avx2", "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"})
LEVELS = {
    "avx2": frozenset({"avx2"}),
    "avx512": _AVX512,
    "avx512_bf16": _AVX512 | {"avx512_vnni", "avx512_bf16"},
}
"""Features by level."""
_PREFIXES = ("avx512", "avx10", "avx_", "amx")


def goes_beyond(feature: str, level: str) -> bool:
    """Whether a processor that is held to ``level`` has no ``feature``."""
    return feature.startswith(_PREFIXES) and feature not in LEVELS[level]
