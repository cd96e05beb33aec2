"""AMD's Quark as a contestant: 8 bits by its configuration for processors.

Activations are unsigned, with ranges by percentiles.
"""

from __future__ import annotations

from request import Reader, package, read


def main() -> None:
    request, onnx = read(), package("quark.onnx")
    config = package("quark.onnx.quantization.config").get_default_config("U8S8_AAWS")
    quantizer = onnx.ModelQuantizer(onnx.Config(global_quant_config=config))
    quantizer.quantize_model(request.model, request.made, Reader(request.samples()))


if __name__ == "__main__":
    main()
