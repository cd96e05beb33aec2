"""Small networks of the usual architectures, in PyTorch, to be exported: a few layers each, random weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _conv(into: int, out: int, stride: int = 1, groups: int = 1, kernel: int = 3) -> nn.Sequential:
    convolution = nn.Conv2d(into, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU())


class ConvNet(nn.Module):
    """Stem, residual blocks and a classifier, as in ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 32, 2, kernel=7), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.ModuleList(nn.Sequential(_conv(32, 32), nn.Conv2d(32, 32, 3, 1, 1)) for _ in range(4))
        self.head = nn.Linear(32, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return F.softmax(self.head(F.adaptive_avg_pool2d(x, 1).flatten(1)), 1)


class GatedConvNet(nn.Module):
    """Depthwise convolutions with squeeze and excitation and hard swish, as in MobileNet v3."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 24, 2)
        self.blocks = nn.ModuleList(_GatedBlock(24) for _ in range(4))
        self.head = nn.Conv2d(24, 100, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3), keepdim=True)).flatten(1)


class _GatedBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.grow, self.depthwise = _conv(width, 72, kernel=1), _conv(72, 72, groups=72)
        self.squeeze, self.excite = nn.Conv2d(72, 16, 1), nn.Conv2d(16, 72, 1)
        self.shrink = nn.Conv2d(72, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.hardswish(self.depthwise(self.grow(x)))
        gate = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(h, 1)))))
        return x + self.shrink(h * gate)


class UNet(nn.Module):
    """Two levels, one up by a transposed convolution, one by bilinear resizing to the skip's own size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = _conv(3, 16), _conv(16, 32, 2), _conv(32, 64, 2)
        self.up = nn.ConvTranspose2d(64, 32, 2, 2)
        self.merge, self.last = _conv(64, 32), nn.Conv2d(48, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(first)
        h = self.merge(torch.cat([self.up(self.third(second)), second], 1))
        h = F.interpolate(h, size=first.shape[2:], mode="bilinear", align_corners=False)
        return self.last(torch.cat([h, first], 1)).sigmoid()


class Detector(nn.Module):
    """Boxes and scores on a grid, the best by score, and suppression of overlaps inside: sizes depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(3, 16, 2), _conv(16, 32, 2), _conv(32, 64, 2))
        self.head = nn.Conv2d(64, 6, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.head(self.body(x)).flatten(2).transpose(1, 2)[0]
        scores = rows[:, 4:].sigmoid().amax(1)
        chosen = torch.nonzero(scores > 0.5).squeeze(1)
        boxes, scores = rows[chosen, :4], scores[chosen]
        order = torch.argsort(scores, descending=True)
        boxes, scores = boxes[order], scores[order]
        corners = torch.cat([boxes[:, :2] - boxes[:, 2:].exp(), boxes[:, :2] + boxes[:, 2:].exp()], 1)
        low = torch.maximum(corners[:, None, :2], corners[None, :, :2])
        high = torch.minimum(corners[:, None, 2:], corners[None, :, 2:])
        shared = (high - low).clamp(min=0).prod(2)
        area = (corners[:, 2:] - corners[:, :2]).prod(1)
        overlap = shared / (area[:, None] + area[None] - shared)
        best = torch.nonzero((torch.triu(overlap, 1) > 0.5).sum(0) == 0).squeeze(1)
        return corners[best], scores[best]


class Recurrent(nn.Module):
    """Two layers, both directions, and a classifier for each step, as in speech and text recognisers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(24, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, 30)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.head(self.layers(x)[0]), -1)


class CachedDecoder(nn.Module):
    """Two layers of a decoder with rotary positions, RMS norms and a cache that grows by the tokens given."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.heads, self.width = nn.Embedding(100, 64), 4, 16
        self.qkv = nn.ModuleList(nn.Linear(64, 192, bias=False) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(2))
        self.gate = nn.ModuleList(nn.Linear(64, 256, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(128, 64, bias=False) for _ in range(2))
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, 8) / 8.0))

    def forward(self, ids: Tensor, cache_k: Tensor, cache_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, (batch, length), past = self.table(ids), ids.shape, cache_k.shape[3]
        places = torch.arange(length, device=ids.device) + past
        mask = places[:, None] < torch.arange(past + length, device=ids.device)[None]
        keys, values = [], []
        for layer in range(2):
            qkv = self.qkv[layer](_rms(x)).view(batch, length, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
            q, k = self._rotate(qkv[0], places), self._rotate(qkv[1], places)
            keys.append(torch.cat([cache_k[layer], k], 2))
            values.append(torch.cat([cache_v[layer], qkv[2]], 2))
            scores = (q @ keys[-1].transpose(2, 3) / self.width**0.5).masked_fill(mask, -1e9)
            mixed = (scores.softmax(-1) @ values[-1]).transpose(1, 2).reshape(batch, length, 64)
            x = x + self.out[layer](mixed)
            one, other = self.gate[layer](_rms(x)).chunk(2, -1)
            x = x + self.down[layer](F.silu(one) * other)
        return _rms(x) @ self.table.weight.T, torch.stack(keys), torch.stack(values)

    def _rotate(self, x: Tensor, places: Tensor) -> Tensor:
        angles = places[:, None] * self.rates[None]
        one, other = x.chunk(2, -1)
        return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1)


def _rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class GreedyDecoder(nn.Module):
    """Decodes in a loop until a token says stop: to be scripted, so that the loop is in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.table, self.head = nn.Linear(64, 32), nn.Embedding(20, 32), nn.Linear(32, 20)

    def forward(self, state: Tensor, most: Tensor) -> Tensor:
        token = torch.zeros(1, dtype=torch.long)
        tokens = [token]
        count = 0
        while count < int(most) and (count < 3 or int(token) != 0):
            state = torch.tanh(self.cell(torch.cat([state, self.table(token)], 1)))
            token = self.head(state).argmax(1)
            tokens.append(token)
            count += 1
        return torch.cat(tokens)
