"""On any processor, what it lacks the instructions for is declined before anything is built."""

from __future__ import annotations

import pytest

from collage_evo.backends import checks
from collage_evo.backends.registry import get_backend
from collage_evo.target.processor import Machine

AVX512 = {"avx2", "avx512f", "avx512bw", "avx512vl"}
PROCESSORS = {
    "AVX2": {"avx2"},
    "AVX-512": AVX512,
    "AVX-512 with VNNI and bfloat16": {*AVX512, "avx512_vnni", "avx512_bf16"},
    "AMX": {*AVX512, "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16"},
    "ARM with dot products and float16": {"asimd", "asimddp", "asimdhp"},
}
INT8 = {"int8", "int8-all", "int8-dynamic"}
DECLINED = {
    "AVX2": {*INT8, "bf16", "f16", "bf16-int8"},
    "AVX-512": {*INT8, "bf16", "f16", "bf16-int8"},
    "AVX-512 with VNNI and bfloat16": {"f16"},
    "AMX": set(),
    "ARM with dot products and float16": {"bf16", "bf16-int8"},
}


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "ncnn", "tvm"])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_variant_is_declined_for_what_the_processor_lacks(
    processor: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine("", processor, frozenset(PROCESSORS[processor]))
    monkeypatch.setattr(checks, "this_machine", lambda: machine)
    backend = get_backend(name)
    ours = [variant for variant in backend.variants if variant.device == "cpu"]
    declined = {variant.name for variant in ours if backend.declines(variant)}
    assert declined == DECLINED[processor] & {variant.name for variant in ours}
    assert "this processor has no instructions for" in " ".join(map(backend.declines, ours)) or not declined
