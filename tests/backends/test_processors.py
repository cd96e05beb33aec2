"""On any processor, what it lacks the instructions for is declined before anything is built, as the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collage_evo.backends import checks
from collage_evo.backends.base import Backend
from collage_evo.backends.registry import get_backend
from collage_evo.hardware.processor import Processor

AVX512 = {"avx2", "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}
PROCESSORS = {
    "AVX2": {"avx2"},
    "AVX2 with VNNI and AVX-IFMA": {"avx2", "avx_vnni", "avx_ifma"},
    "AVX-512": AVX512,
    "AVX-512 with VNNI and BF16": {*AVX512, "avx512_vnni", "avx512_bf16"},
    "AVX-512 with VNNI, BF16, FP16 and AMX": {*AVX512, "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8"},
    "ARM with dot products and float16": {"asimd", "asimddp", "asimdhp"},
}
ALL = "all instructions of these"
BACKENDS = ("onnxruntime", "openvino", "ncnn", "tvm")


def documented() -> dict[tuple[str, str], set[str]]:
    """By processor and backend the variants that ``docs/backends.md`` says take part."""
    text = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    table = re.findall(r"^\| processor \|.*\n(?:\|.*\n)+", text, re.M)[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()]
    backends = [cell.strip() for cell in rows[0][1:]]
    return {
        (row[0].strip(), backend): set(re.findall(r"`(.+?)`", cell))
        for row in rows[2:] for backend, cell in zip(backends, row[1:], strict=True)
    }  # fmt: skip


def on_the_cpu(backend: Backend) -> list[str]:
    return [variant.name for variant in backend.variants if variant.device == "cpu" and not variant.last_resort]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("processor", [*PROCESSORS, ALL])
def test_a_variant_is_declined_for_what_the_processor_lacks(
    processor: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = PROCESSORS.get(processor) or set().union(*PROCESSORS.values())
    machine, backend = Processor("", processor, frozenset(features)), get_backend(name)
    monkeypatch.setattr(checks, "this_machine", lambda: machine)
    variants = on_the_cpu(backend)
    reasons = {variant: backend.declines(backend.variant(variant)) for variant in variants}
    expected = set(variants) if processor == ALL else documented()[processor, name]
    assert {variant for variant, reason in reasons.items() if not reason} == expected
    assert all("this processor does not compute in" in reason for reason in reasons.values() if reason)


def test_the_documents_know_each_processor() -> None:
    assert documented().keys() == {(processor, backend) for processor in PROCESSORS for backend in BACKENDS}
