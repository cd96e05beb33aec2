"""The PyTorch backend."""

from collage_evo_cuda.torch.backend import TorchBackend

__all__ = ["TorchBackend"]
