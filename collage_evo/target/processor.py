"""What of this machine compiled code depends on: its architecture, the CPU's name, instruction sets, C library."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from collage_evo.errors import InputError

_FAMILIES = ("sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "popcnt", "asimd", "sve", "sme", "bf16", "i8mm")

_INT8 = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
_INSTRUCTIONS = {
    "int8": _INT8,
    "int8-blocks": _INT8,
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "avx_ifma"}),
    "float16": frozenset({"avx512_fp16", "asimdhp", "avx_ifma"}),
}
"""By arithmetic the features one of which libraries need for it.

Linux does not name AVX-NE-CONVERT, with which processors of 256 bits read bfloat16 and float16. All that have it have
AVX-IFMA too, which it does name. On ARM no library here computes in bfloat16.
"""

_VECTORS = frozenset({"avx", "avx2", "fma", "f16c", "avx512f", "asimd", "sve", "sve2", "sme"})
_DECIDING = _VECTORS.union(*_INSTRUCTIONS.values())
"""What libraries choose their kernels by, and with them how wide sums are and how they round."""

SWITCH = "COLLAGE_EVO_PROCESSOR"
"""The environment variable that names the level to which this processor is held, to try what a lesser one does."""

_AVX512 = frozenset({"avx2", "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"})
LEVELS = {
    "avx2": frozenset({"avx2"}),
    "avx512": _AVX512,
    "avx512_bf16": _AVX512 | {"avx512_vnni", "avx512_bf16"},
}
"""By level the features that it stands for. Of those in ``_HELD`` a processor held to it has no others."""
_HELD = ("avx512", "avx_", "amx")


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

    def held_to(self, level: str) -> Machine:
        """This machine without what goes beyond a level. Its name says so: nothing kept of one is the other's.

        Raises:
            InputError: there is no such level, or the machine does not reach it.
        """
        if level not in LEVELS:
            raise InputError(f"{SWITCH}={level}: there is no such level, leave it out or take {', '.join(LEVELS)}")
        if missing := self.lacks(LEVELS[level]):
            raise InputError(f"{SWITCH}={level}: this processor lacks {', '.join(missing)}, take a lower level")
        kept = frozenset(one for one in self.features if one in LEVELS[level] or not one.startswith(_HELD))
        return replace(self, cpu=f"{self.cpu}, held to {level}", features=kept)

    def other_than(self, made_on: Machine) -> str:
        """Which instructions differ from those of the machine that something was made on; empty where none does.

        They decide how libraries round and how fast they are: of the same file they choose other kernels.
        """
        lacking = self.lacks(made_on.features & _DECIDING)
        more = made_on.lacks(self.features & _DECIDING)
        told = [f"lacks {', '.join(lacking)}"] if lacking else []
        told += [f"has {', '.join(more)} besides"] if more else []
        return f"it was made on {made_on.cpu}; this processor, {self.cpu}, {' and '.join(told)}" if told else ""

    def lacks(self, features: frozenset[str]) -> tuple[str, ...]:
        """Those of ``features`` that are missing here, sorted."""
        return tuple(sorted(features - self.features))


def level() -> str:
    """The level to which this processor is held, as ``SWITCH`` says; empty if it is not."""
    return os.environ.get(SWITCH, "")


@cache
def this_machine() -> Machine:
    """The machine this process runs on, held to :func:`level`; without features where the system does not tell.

    Raises:
        InputError: as :meth:`Machine.held_to` does.
    """
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError:
        told = ""
    here = machine_of(told)
    return here.held_to(level()) if level() else here


def machine_of(cpuinfo: str) -> Machine:
    """This machine, whose first processor is described as Linux does in ``/proc/cpuinfo``."""
    told: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        told.setdefault(key.strip(), value.strip())
    features = told.get("flags") or told.get("Features") or ""
    name = told.get("model name") or platform.processor() or platform.machine()
    used = frozenset(feature for feature in features.split() if feature.startswith(_FAMILIES))
    return Machine(platform.machine(), name, used, " ".join(filter(None, platform.libc_ver())))
