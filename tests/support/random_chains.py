"""Random regions that can be cut along their rows: takes a random generator, gives a small model."""

from __future__ import annotations

import numpy as np
import onnx

from collage_evo.models.builder import Builder


class RandomChain:
    """Convolutions, pools and elementwise operators of every geometry; branches are added or concatenated."""

    def __init__(self, random: np.random.Generator, batches: tuple[int, ...] = (1, 1, 2)) -> None:
        self.random = random
        self.builder = Builder("chain")
        rank = int(random.choice([1, 2, 2, 2, 3]))
        self.shape = (int(random.choice(batches)), 4, int(random.integers(9, 30)), *random.integers(4, 9, rank - 1))
        self.x = self.builder.input("x", [int(size) for size in self.shape])
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def model(self, steps: int) -> onnx.ModelProto:
        """The last tensor is an output, at times another one too."""
        kinds = [self.convolution, self.convolution, self.pool, self.activation, self.residual, self.branches]
        kinds += [self.scaled, self.padded, self.transposed, self.pixels]
        while len(self.made) < steps:
            kinds[self.random.integers(len(kinds))]()
            self.made.append((self.x, self.shape))
        if self.x == "x":
            self.activation()
        others = {name for name, shape in self.made[:-1] if len(shape) > 2 and shape[2] > 2} - {self.x, "x"}
        further = sorted(others)[:1] if self.random.random() < 0.3 else []
        return self.builder.model(self.x, *further)

    def weights(self, *shape: int) -> str:
        return self.builder.const(self.random.standard_normal(shape).astype(np.float32) / 3)

    def geometry(self, pool: bool) -> tuple[dict[str, object], tuple[int, ...]] | None:
        """Attributes of a window and the spatial sizes that it leaves; None where it does not fit."""
        rank, random = len(self.shape) - 2, self.random
        kernel, stride = random.integers(1, 5, rank), random.integers(1, 4, rank)
        dilation = np.ones(rank, int) if pool else random.integers(1, 3, rank)
        before, after = (random.integers(0, kernel, rank) for _ in range(2))
        reach = (kernel - 1) * dilation + 1
        free = np.array(self.shape[2:]) + before + after - reach
        up = bool(pool and random.random() < 0.2)
        left = (-(-free // stride) if up else free // stride) + 1
        begins_outside = (left - 1) * stride >= self.shape[2:] + before
        if min(free) < 0 or left[0] < 4 or begins_outside.any():
            return None
        found: dict[str, object] = {"kernel_shape": kernel, "strides": stride, "pads": [*before, *after]}
        if not pool:
            found["dilations"] = dilation
        elif up:
            found["ceil_mode"] = 1
        if not up and random.random() < 0.2 and (kernel >= stride).all():
            del found["pads"]
            found.pop("dilations", None)
            found["auto_pad"] = str(random.choice(["SAME_UPPER", "SAME_LOWER"]))
            left = -(-np.array(self.shape[2:]) // stride)
            if left[0] < 4:
                return None
        return found, tuple(left)

    def convolution(self) -> None:
        geometry = self.geometry(pool=False)
        if geometry is None:
            return
        attributes, left = geometry
        channels = self.shape[1]
        group = int(self.random.choice([1, 2, channels])) if channels % 2 == 0 else 1
        made = channels if group > 1 else int(self.random.choice([4, 6]))
        weight = self.weights(made, channels // group, *attributes["kernel_shape"])  # type: ignore[misc]
        self.x = self.builder.op("Conv", self.x, weight, self.weights(made), group=group, **attributes)
        self.shape = (self.shape[0], made, *left)

    def pool(self) -> None:
        geometry = self.geometry(pool=True)
        if geometry is None:
            return
        attributes, left = geometry
        kind = str(self.random.choice(["MaxPool", "AveragePool"]))
        if kind == "AveragePool":
            attributes["count_include_pad"] = int(self.random.integers(2))
        self.x = self.builder.op(kind, self.x, **attributes)
        self.shape = (*self.shape[:2], *left)

    def activation(self) -> None:
        self.x = self.builder.op(str(self.random.choice(["Relu", "Sigmoid", "Tanh"])), self.x)

    def scaled(self) -> None:
        """By constants of one value a channel, or one a row."""
        rank, random = len(self.shape) - 2, self.random
        shape = (self.shape[1], *[1] * rank) if random.random() < 0.5 else (self.shape[2], *[1] * (rank - 1))
        self.x = self.builder.op("Mul", self.x, self.weights(*shape))

    def padded(self) -> None:
        pads = np.zeros((2, len(self.shape)), np.int64)
        pads[:, 2] = self.random.integers(0, 3, 2)
        self.x = self.builder.op("Pad", self.x, self.builder.ints(*pads.reshape(-1)))
        self.shape = (*self.shape[:2], self.shape[2] + int(pads[:, 2].sum()), *self.shape[3:])

    def transposed(self) -> None:
        rank, random = len(self.shape) - 2, self.random
        kernel, stride, dilation = (random.integers(1, high, rank) for high in (5, 4, 3))
        reach = (kernel - 1) * dilation + 1
        before, after = random.integers(0, kernel, rank), random.integers(0, kernel, rank)
        further = random.integers(0, stride, rank)
        left = (np.array(self.shape[2:]) - 1) * stride + reach - before - after + further
        if min(left) < 4 or max(left) > 60:
            return
        weight = self.weights(self.shape[1], 4, *kernel)
        window = {"kernel_shape": kernel, "strides": stride, "dilations": dilation}
        self.x = self.builder.op(
            "ConvTranspose", self.x, weight, pads=[*before, *after], output_padding=further, **window
        )
        self.shape = (self.shape[0], 4, *left)

    def pixels(self) -> None:
        if len(self.shape) == 4 and self.shape[1] % 4 == 0:
            self.x = self.builder.op("DepthToSpace", self.x, blocksize=2)
            self.shape = (self.shape[0], self.shape[1] // 4, self.shape[2] * 2, self.shape[3] * 2)

    def residual(self) -> None:
        """Adds a tensor that lies further back, where one has the shape."""
        alike = [name for name, shape in self.made if tuple(shape) == tuple(self.shape) and name != self.x]
        if alike:
            self.x = self.builder.op("Add", self.x, str(self.random.choice(alike)))

    def branches(self) -> None:
        """Two convolutions of different reach, side by side on the channels."""
        rank, channels = len(self.shape) - 2, self.shape[1]
        wide = self.builder.op("Conv", self.x, self.weights(4, channels, *[5] * rank), pads=[2] * 2 * rank)
        narrow = self.builder.op("Conv", self.x, self.weights(4, channels, *[1] * rank))
        self.x = self.builder.op("Concat", narrow, wide, self.x, axis=1)
        self.shape = (self.shape[0], channels + 8, *self.shape[2:])
