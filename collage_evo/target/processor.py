"""What of this machine compiled code depends on: its architecture, the CPU's name, instruction sets, C library."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FAMILIES = ("sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "popcnt", "asimd", "sve", "sme", "bf16", "i8mm")

_INSTRUCTIONS = {
    "int8": frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"}),
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "avx_ifma"}),
    "float16": frozenset({"avx512_fp16", "asimdhp", "avx_ifma"}),
}
"""By arithmetic the features one of which libraries need for it.

Linux does not name AVX-NE-CONVERT, with which processors of 256 bits convert what they load from bfloat16 and float16.
All that have it have AVX-IFMA too, which it does name. On ARM no library here computes in bfloat16.
"""


@dataclass(frozen=True)
class Machine:
    """Architecture as ``uname -m`` gives it, the CPU's model name, its features as Linux names them.

    Features are those that compilers and kernel libraries make use of: vector, matrix and bit instructions. ``libc``
    is the C library that what is compiled here is linked against, with its version.
    """

    architecture: str
    cpu: str
    features: frozenset[str]
    libc: str = ""

    def computes_in(self, arithmetic: str) -> bool:
        """Whether it has instructions for sums of products in ``arithmetic``, without which that wins nothing."""
        needed = _INSTRUCTIONS.get(arithmetic)
        return needed is None or bool(self.features & needed)

    def lacks(self, features: frozenset[str]) -> tuple[str, ...]:
        """Those of ``features`` that are missing here, sorted."""
        return tuple(sorted(features - self.features))


@cache
def this_machine() -> Machine:
    """The machine this process runs on; without features where the system does not tell."""
    told: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            told.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    features = told.get("flags") or told.get("Features") or ""
    name = told.get("model name") or platform.processor() or platform.machine()
    used = frozenset(feature for feature in features.split() if feature.startswith(_FAMILIES))
    return Machine(platform.machine(), name, used, " ".join(filter(None, platform.libc_ver())))
