"""The machine that compiled code depends on: architecture, CPU name, instruction sets, C library."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.hardware.held import hold
from collage_evo.hardware.levels import LEVELS, SWITCH, goes_beyond
from collage_evo.multimap import firsts

_FAMILIES = ("sse", "ssse", "avx", "amx", "fma", "f16c", "bmi", "popcnt", "asimd", "sve", "sme", "bf16", "i8mm")

_INSTRUCTIONS = {
    "bfloat16": frozenset({"avx512_bf16", "amx_bf16", "avx_ifma"}),
    "float16": frozenset({"avx512_fp16", "asimdhp", "avx_ifma"}),
}
"""By arithmetic the features of which libraries need one to compute in it. Any processor computes in int8.

Linux does not name AVX-NE-CONVERT, with which processors of 256 bits read bfloat16 and float16. All that have it have
AVX-IFMA too, which it does name. On ARM no library here computes in bfloat16.
"""
_X86 = frozenset({"x86_64", "AMD64", "i686"})
_VNNI = frozenset({"avx512_vnni", "avx_vnni"})
"""Instructions that add products of uint8 and int8 in 32 bits."""

_VECTORS = frozenset({"avx", "avx2", "fma", "f16c", "avx512f", "asimd", "sve", "sve2", "sme"})
_ONE_MAKERS = frozenset({"sse4a", "smep"})
"""Features that code for a level does not need: AMD alone has the first, and only a kernel uses the other."""
_TELLING = (
    *("amx_int8", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "avx"),
    *("i8mm", "asimddp", "asimd"),
)
"""Features that people call processors by, the latest of each architecture first."""
_DECIDING = _VECTORS.union(_VNNI, {"amx_int8", "asimddp", "i8mm"}, *_INSTRUCTIONS.values())
"""Features by which libraries choose their kernels, and so the width and rounding of sums."""


@dataclass(frozen=True)
class Processor:
    """Architecture as ``uname -m`` gives it, the CPU's model name, its features as Linux names them.

    Features are those that compilers and kernel libraries use: vector, matrix and bit instructions. ``libc`` is the C
    library that compiled code is linked against, with its version.
    """

    architecture: str
    cpu: str
    features: frozenset[str]
    libc: str = ""

    def computes_in(self, arithmetic: str) -> bool:
        """Whether libraries compute in ``arithmetic`` on it. A run measures whether that is faster."""
        needed = _INSTRUCTIONS.get(arithmetic)
        return needed is None or bool(self.features & needed)

    @property
    def saturates_int8(self) -> bool:
        """Whether its instruction for uint8 times int8 adds neighbouring products in 16 bits, with saturation.

        ``vpmaddubsw``, which libraries use on x86 without VNNI: 255 * 127 * 2 becomes 32767.
        """
        return self.architecture in _X86 and not self.features & _VNNI

    def most_gain(self, arithmetic: str) -> float:
        """How many times as fast it multiplies in ``arithmetic`` as in float32, at most; infinite if that is unknown.

        Vectors hold twice as many numbers of float16; only AMX-FP16 multiplies whole matrices of them.
        """
        return 2.0 if arithmetic == "float16" and "amx_fp16" not in self.features else math.inf

    def held_to(self, level: str, setting: str = "target.processor") -> Processor:
        """This machine without features beyond a level. Its name contains the level, so that stored data differ.

        Raises:
            InputError: there is no such level, or the machine does not reach it; the message has the ``setting``.
        """
        if level not in LEVELS:
            raise InputError(f"{setting} {level}: there is no such level, leave it out or take {', '.join(LEVELS)}")
        if missing := self.lacks(LEVELS[level]):
            raise InputError(f"{setting} {level}: this processor lacks {', '.join(missing)}, take a lower level")
        features = frozenset(one for one in self.features - _ONE_MAKERS if not goes_beyond(one, level))
        return replace(self, cpu=f"{self.cpu}, held to {level}", features=features)

    def other_than(self, made_on: Processor) -> str:
        """Instructions that differ from those of the machine ``made_on``; empty where none does.

        They determine how libraries round and how fast they are: for the same file they choose other kernels.
        """
        text = self.differences(made_on)
        return f"it was made on {made_on.cpu}; this processor, {self.cpu}, {text}" if text else ""

    def differences(self, made_on: Processor) -> str:
        """The differing instructions of :meth:`other_than`, as the end of a sentence; empty where none does."""
        lacking = self.lacks(made_on.features & _DECIDING)
        more = made_on.lacks(self.features & _DECIDING)
        text = [f"lacks {', '.join(lacking)}"] if lacking else []
        text += [f"has {', '.join(more)} besides"] if more else []
        if made_on.saturates_int8 and not self.saturates_int8:
            text += ["computes int8 with finer weights, so a new run may find a smaller error"]
        return " and ".join(text)

    @property
    def kind(self) -> str:
        """The most telling of its features, as a short name; the architecture where it has none of these."""
        return next((one for one in _TELLING if one in self.features), self.architecture)

    def lacks(self, features: frozenset[str]) -> tuple[str, ...]:
        """Those of ``features`` that are missing here, sorted."""
        return tuple(sorted(features - self.features))


def level() -> str:
    """The level in ``SWITCH`` to which this processor is held; empty if it is not."""
    return os.environ.get(SWITCH, "")


@cache
def this_machine() -> Processor:
    """The machine this process runs on, held to :func:`level`; without features where the system lists none.

    Raises:
        InputError: as :meth:`Processor.held_to` does.
    """
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    here = machine_of(text)
    if not level():
        return here
    held = here.held_to(level(), SWITCH)
    return held if hold() else replace(held, cpu=f"{held.cpu} but for ONNX Runtime and ncnn")


def machine_of(cpuinfo: str) -> Processor:
    """This machine, whose first processor is described as Linux does in ``/proc/cpuinfo``."""
    entries = (line.partition(":") for line in cpuinfo.splitlines())
    text = firsts((key.strip(), value.strip()) for key, _, value in entries)
    features = text.get("flags") or text.get("Features") or ""
    name = text.get("model name") or platform.processor() or platform.machine()
    used = frozenset(feature for feature in features.split() if feature.startswith(_FAMILIES))
    return Processor(platform.machine(), name, used, " ".join(filter(None, platform.libc_ver())))
