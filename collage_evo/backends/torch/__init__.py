"""The PyTorch backend."""

from collage_evo.backends.torch.backend import TorchBackend

__all__ = ["TorchBackend"]
