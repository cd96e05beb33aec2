"""The processor is what the system tells of it, less what it is held to; on any architecture."""

import os
import subprocess
import sys

import pytest

from collage_evo.errors import InputError
from collage_evo.hardware.levels import LEVELS, SWITCH
from collage_evo.hardware.processor import Processor, machine_of, this_machine
from collage_evo.hardware.target import Target

WIDEST = frozenset().union(*LEVELS.values(), {"sse4_2", "fma", "avx", "avx512_fp16", "avx_vnni", "amx_bf16"})
XEON = Processor("x86_64", "Xeon", WIDEST)


def test_an_x86_processor_tells_its_name_and_flags() -> None:
    machine = machine_of("model name\t: Xeon\nflags\t\t: fpu avx2 avx512_bf16\n\nmodel name\t: no\n")
    assert (machine.cpu, machine.features) == ("Xeon", {"avx2", "avx512_bf16"})


def test_an_arm_processor_tells_its_features_and_no_name() -> None:
    machine = machine_of("processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp sve\nCPU part\t: 0xd0c\n")
    assert machine.features == {"asimd", "asimdhp", "asimddp", "sve"}
    assert machine.cpu
    assert machine.computes_in("int8")
    assert machine.computes_in("float16")
    assert not machine.computes_in("bfloat16")


def test_a_system_that_tells_nothing_has_a_processor_without_features() -> None:
    assert machine_of("").features == frozenset()


@pytest.mark.parametrize("level", LEVELS)
def test_a_processor_held_to_a_level_has_nothing_beyond_it_and_is_another_target(level: str) -> None:
    held = XEON.held_to(level)
    assert held.features == LEVELS[level] | {"sse4_2", "fma", "avx"}
    assert level in held.cpu
    assert Target(machine=held).digest != Target(machine=XEON).digest
    reached = Processor("x86_64", "Xeon", held.features)
    assert Target(machine=reached.held_to(level)).digest != Target(machine=reached).digest, "compiled as another"


def test_a_level_that_is_unknown_or_not_reached_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match="no such level, leave it out or take avx2, avx512"):
        XEON.held_to("mmx")
    with pytest.raises(InputError, match="lacks avx512_bf16, avx512_vnni, take a lower level"):
        XEON.held_to("avx512").held_to("avx512_bf16")


@pytest.mark.skipif("avx2" not in this_machine().features, reason="no level that this processor could be held to")
def test_the_environment_holds_this_processor_to_a_level() -> None:
    told = "from collage_evo.hardware.processor import this_machine; print(this_machine().cpu)"
    command = [sys.executable, "-c", told]
    found = subprocess.run(command, env={**os.environ, SWITCH: "avx2"}, capture_output=True, text=True, check=True)
    assert ", held to avx2" in found.stdout


def test_only_instructions_that_kernels_are_chosen_by_make_another_processor() -> None:
    lesser = Processor("x86_64", "lesser", XEON.features - {"avx512_bf16"})
    assert "lacks avx512_bf16" in lesser.other_than(XEON)
    assert "has avx512_bf16 besides" in XEON.other_than(lesser)
    assert Processor("x86_64", "renamed", XEON.features - {"sse4_2"}).other_than(XEON) == ""


def test_an_artifact_made_without_vnni_has_coarser_weights_than_a_processor_with_it_needs() -> None:
    plain, vnni = (Processor("x86_64", "some", frozenset({"avx2", *more})) for more in ((), ("avx_vnni",)))
    assert "computes int8 with finer weights" in vnni.other_than(plain)
    assert "finer weights" not in plain.other_than(vnni), "it is refused there: the processor lacks avx_vnni"
