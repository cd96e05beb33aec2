"""AMD's Quark as a contestant.

``static``: 8 bits by its configuration for processors, activations unsigned with ranges by percentiles.
``search``: what loses least in the first stage of its own search for 8 bits: how ranges are taken, and whether layers
are equalised. Its second stage trains how weights are rounded, for thousands of steps in each of 20 trials: hours
without a GPU.
"""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path

from request import Reader, Request, package, read


def static(request: Request) -> None:
    onnx = package("quark.onnx")
    config = package("quark.onnx.quantization.config").get_default_config("U8S8_AAWS")
    quantizer = onnx.ModelQuantizer(onnx.Config(global_quant_config=config))
    quantizer.quantize_model(request.model, request.made, Reader(request.samples()))


def search(request: Request) -> None:
    onnx = package("quark.onnx")
    config = deepcopy(onnx.get_auto_search_config("A8W8_SEARCH"))
    space = {name: values for name, values in config["search_space"].items() if not name.startswith("ada")}
    space["algorithms"] = None
    scores: dict[str, float] = {}

    def evaluate(model: str) -> float:
        return scores.setdefault(str(model), request.score(model))

    config.update(
        search_space=space,
        search_evaluator=evaluate,
        model_input=request.model,
        calib_data_reader=Reader(request.samples()),
        output_dir="searched",
        temp_dir="temporary",
    )
    onnx.AutoSearchPro(config).run()
    del scores[request.model]
    shutil.copyfile(max(scores, key=scores.__getitem__), Path(request.made))


if __name__ == "__main__":
    question = read()
    {"static": static, "search": search}[question.way](question)
