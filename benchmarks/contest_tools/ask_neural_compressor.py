"""Neural Compressor for ONNX: takes a question as a file, writes the model.

Its tuning by accuracy: its own settings for static quantisation one after the other, then SmoothQuant with each of
its strengths, until one keeps the budget.
"""

from __future__ import annotations

from asked import Asked, Reader, package, read


def tune(asked: Asked) -> None:
    tuning = package("onnx_neural_compressor.quantization.tuning")
    config = package("onnx_neural_compressor.quantization.config")
    quantization, onnx = package("onnxruntime.quantization"), package("onnx")
    static = config.StaticQuantConfig.get_config_set_for_tuning(quant_format=quantization.QuantFormat.QDQ)
    smooth = config.SmoothQuantConfig(
        alpha=[round(0.3 + 0.05 * step, 2) for step in range(9)], quant_format=quantization.QuantFormat.QDQ
    )
    wanted = [smooth, *static] if asked.transformer else [*static, smooth]
    best = tuning.autotune(
        asked.model,
        tuning.TuningConfig(config_set=wanted, tolerable_loss=asked.budget),  # a share of what is kept at first, 1
        eval_fn=asked.kept,
        calibration_data_reader=Reader(asked.samples()),
    )
    onnx.save(best, asked.made)


if __name__ == "__main__":
    tune(read())
