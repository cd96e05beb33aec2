"""A library that runs on the CPU too has one name, and variants for both."""

import pytest

from collage_evo.backends.registry import get_backend


@pytest.mark.parametrize("name", ["onnxruntime", "tvm", "torch", "cudnn", "tensorrt"])
def test_whoever_looks_for_the_provider_of_a_gpu_finds_it(name: str) -> None:
    assert get_backend(name).execution_providers["cuda"] == "CUDAExecutionProvider"


@pytest.mark.parametrize(("name", "first"), [("onnxruntime", "default"), ("tvm", "default"), ("torch", "default")])
def test_variants_of_the_gpu_come_after_those_of_the_host(name: str, first: str) -> None:
    hosts = [variant.on_host for variant in get_backend(name).variants]
    assert get_backend(name).variants[0].name == first
    assert hosts == sorted(hosts, reverse=True)
    assert not all(hosts)


def test_a_tuned_variant_runs_where_it_was_tuned() -> None:
    tvm = get_backend("tvm")
    assert tvm.variant("tuned-01234567").on_host
    assert tvm.variant("cuda-tuned-01234567").device == "cuda"
