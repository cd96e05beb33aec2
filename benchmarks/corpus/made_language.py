"""Encoders, decoders and a speech recogniser of the ``transformers`` package, tiny and with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from corpus.entry import below, filled, normal
from corpus.made import Made
from corpus.made_exports import Axes, dynamo, torchscript

WORDS = 200
TEXT = {"input_ids": below(WORDS, 1, 24), "attention_mask": filled(1, 1, 24)}
TEXT_AXES: Axes = {name: {0: "batch", 1: "sequence"} for name in TEXT}


def models() -> Iterator[Made]:
    """Every export of this module."""
    for name in ("bert", "distilbert", "roberta"):
        yield named(f"{name}-ts17", torchscript(text_encoder(name), TEXT, 17, TEXT_AXES))
    yield named("bert-ts14-static", torchscript(text_encoder("bert"), TEXT, 14))
    yield named("bert-dynamo18", dynamo(text_encoder("bert"), TEXT, 18))
    yield named("vit-ts17", torchscript(_First(_vit()), {"x": normal(1, 3, 32, 32)}, 17, {"x": {0: "batch"}}))
    yield named("vit-dynamo20", dynamo(_First(_vit()), {"x": normal(1, 3, 32, 32)}, 20))
    yield named("gpt2-dynamo18", dynamo(_First(_gpt2()), {"x": below(WORDS, 1, 16)}, 18, {"x": {1: "sequence"}}))
    whisper = _whisper()
    yield named("whisper-encoder-ts17", torchscript(_First(whisper.get_encoder()), {"x": normal(1, 16, 200)}, 17))
    yield named("whisper-encoder-dynamo18", dynamo(_First(whisper.get_encoder()), {"x": normal(1, 16, 200)}, 18))
    heard = {"ids": below(WORDS, 1, 6), "heard": normal(1, 100, 64)}
    axes: Axes = {"ids": {1: "length"}}
    yield named("whisper-decoder-dynamo18", dynamo(_WhisperDecoder(whisper), heard, 18))
    yield named("whisper-decoder-dynamo18-length", dynamo(_WhisperDecoder(whisper), heard, 18, axes))
    yield named("clip-text-ts17", torchscript(_First(_clip()), {"x": below(WORDS, 1, 16)}, 17, {"x": {0: "batch"}}))
    yield named("wav2vec2-ts17", torchscript(_First(_wav2vec2()), {"x": normal(1, 4000)}, 17, {"x": {1: "samples"}}))


def named(name: str, made: Made) -> Made:
    source = f"transformers {transformers.__version__}, {made.source}"
    return Made(f"language-{name}", source, made.save, made.inputs)


def text_encoder(kind: str) -> nn.Module:
    """Two layers, for token ids and a mask."""
    sizes: dict[str, Any] = {"vocab_size": WORDS, "attn_implementation": "eager"}
    if kind == "distilbert":
        sizes |= {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4}
    else:
        sizes |= {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return _Masked(_made(transformers.AutoConfig.for_model(kind, **sizes)))


class _Masked(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.net(input_ids=input_ids, attention_mask=attention_mask)[0]


class _First(nn.Module):
    """The network's first output, without a cache."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x, return_dict=False)[0]


class _WhisperDecoder(nn.Module):
    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net, self.head = net.get_decoder(), net.proj_out

    def forward(self, ids: Tensor, heard: Tensor) -> Tensor:
        return self.head(self.net(input_ids=ids, encoder_hidden_states=heard, use_cache=False, return_dict=False)[0])


def _made(config: Any, kind: Any = transformers.AutoModel) -> Any:
    torch.manual_seed(0)
    return kind.from_config(config).eval()


def _vit() -> Any:
    config = transformers.ViTConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32,
        patch_size=8, attn_implementation="eager",
    )  # fmt: skip
    return _made(config)


def _gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=64, n_layer=2, n_head=4, n_positions=64, use_cache=False, attn_implementation="eager"
    )
    return _made(config, transformers.AutoModelForCausalLM)


def _clip() -> Any:
    config = transformers.CLIPTextConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, eos_token_id=WORDS - 1, bos_token_id=0, pad_token_id=1,
        attn_implementation="eager",
    )  # fmt: skip
    return _made(config)


def _whisper() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=WORDS, num_mel_bins=16, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=100,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        attn_implementation="eager",
    )  # fmt: skip
    return _made(config, transformers.AutoModelForSpeechSeq2Seq)


def _wav2vec2() -> Any:
    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        conv_dim=(32, 32, 32), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, attn_implementation="eager",
    )  # fmt: skip
    return _made(config, transformers.AutoModelForCTC)
