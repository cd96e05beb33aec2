"""One digest tells targets apart that need other code or cost something else, and nothing more."""

from dataclasses import replace

import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.hardware.processor import Processor
from collage_evo.hardware.target import Target

XEON = Processor("x86_64", "Xeon", frozenset({"avx2", "avx512f"}), "glibc 2.39")
TARGET = Target("cpu", 1, (0,), XEON)


@pytest.mark.parametrize(
    "other",
    [
        replace(TARGET, device="cuda"),
        replace(TARGET, threads=2),
        replace(TARGET, accelerator="H200"),
        replace(TARGET, machine=replace(XEON, architecture="aarch64")),
        replace(TARGET, machine=replace(XEON, cpu="EPYC")),
        replace(TARGET, machine=replace(XEON, features=frozenset({"avx2"}))),
        replace(TARGET, machine=replace(XEON, libc="glibc 2.28")),
    ],
    ids=lambda target: target.description,
)
def test_what_decides_code_or_cost_decides_the_digest(other: Target) -> None:
    assert other.digest != TARGET.digest
    assert other.key("tvm", "1", "default") != TARGET.key("tvm", "1", "default")


def test_cores_and_the_place_of_records_decide_neither() -> None:
    assert replace(TARGET, cores=(2,), records="elsewhere").digest == TARGET.digest


def test_a_target_comes_back_from_json_as_it_was() -> None:
    target = replace(TARGET, accelerator="H200", records="records")
    found = from_json(to_json(target), Target)
    assert (found, found.records, found.digest) == (target, "records", target.digest)


def test_only_another_machines_target_is_foreign() -> None:
    assert not Target.here("cpu", 2).foreign
    assert "Xeon of nowhere" in replace(TARGET, machine=replace(XEON, cpu="Xeon of nowhere")).foreign
