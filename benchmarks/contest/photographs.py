"""Networks for photographs with random weights, and pieces of photographs: what counts is time at an error."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from networks import make_network
from PIL import Image

from contest.task import Arrays, Task, write_task

MEAN = np.array((0.485, 0.456, 0.406), np.float32)
DEVIATION = np.array((0.229, 0.224, 0.225), np.float32)
"""Of ImageNet's channels, as networks for it are given their images."""


def make_convnext(task: Task, samples: int, held_out: int) -> None:
    """ConvNeXt-T by transformers. A new one scales its blocks by 1e-6, so that nothing of them is seen; here 0.5."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    network = partial(ConvNextForImageClassification, ConvNextConfig(num_labels=1000, layer_scale_init_value=0.5))
    _write(task, _exported(network), samples, held_out)


def make_swin(task: Task, samples: int, held_out: int) -> None:
    """Swin-T by transformers."""
    from transformers import SwinConfig, SwinForImageClassification

    _write(task, _exported(partial(SwinForImageClassification, SwinConfig(num_labels=1000))), samples, held_out)


def make_by_name(source: str, task: Task, samples: int, held_out: int) -> None:
    """A network that benchmarks know by its name."""
    _write(task, make_network(source), samples, held_out)


def photograph(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A piece of one of scikit-learn's two photographs, some of them turned over."""
    from sklearn.datasets import load_sample_images

    image = Image.fromarray(load_sample_images().images[int(rng.integers(0, 2))])
    size = int(rng.integers(200, 420))
    left, top = int(rng.integers(0, image.width - size)), int(rng.integers(0, image.height - size))
    piece = image.crop((left, top, left + size, top + size)).resize((width, height))
    return piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else piece


def _write(task: Task, model: onnx.ModelProto, samples: int, held_out: int) -> None:
    (image,) = model.graph.input
    height, width = (dim.dim_value for dim in image.type.tensor_type.shape.dim[2:])

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        pieces = np.stack([np.asarray(photograph(rng, width, height)) for _ in range(count)])
        scaled = (pieces.astype(np.float32) / 255 - MEAN) / DEVIATION
        return {image.name: np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)[:, np.newaxis])}

    write_task(task, model, draw(samples, 51), draw(held_out, 52))


def _exported(network: Callable[[], Any]) -> onnx.ModelProto:
    """PyTorch's file of a network of transformers: ``image`` [1, 3, 224, 224] to ``scores`` [1, 1000]."""
    import torch

    class Scores(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.network = network()

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.network(pixel_values=image).logits

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Scores().eval(), (torch.zeros(1, 3, 224, 224),), file, input_names=["image"], output_names=["scores"],
            opset_version=17, dynamo=False,
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())
