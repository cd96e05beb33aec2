"""Neural Compressor for ONNX as a contestant.

Its tuning by accuracy: its own settings for static quantisation one after the other, then SmoothQuant with each of
its strengths, until one keeps the budget.
"""

from __future__ import annotations

from request import Reader, Request, package, read


def tune(request: Request) -> None:
    tuning = package("onnx_neural_compressor.quantization.tuning")
    config = package("onnx_neural_compressor.quantization.config")
    quantization, onnx = package("onnxruntime.quantization"), package("onnx")
    static = config.StaticQuantConfig.get_config_set_for_tuning(quant_format=quantization.QuantFormat.QDQ)
    smooth = config.SmoothQuantConfig(
        alpha=[round(0.3 + 0.05 * step, 2) for step in range(9)], quant_format=quantization.QuantFormat.QDQ
    )
    wanted = [smooth, *static] if request.transformer else [*static, smooth]
    best = tuning.autotune(
        request.model,
        tuning.TuningConfig(config_set=wanted, tolerable_loss=request.budget),  # a share of what is kept at first, 1
        eval_fn=request.score,
        calibration_data_reader=Reader(request.samples()),
    )
    onnx.save(best, request.made)


if __name__ == "__main__":
    tune(read())
