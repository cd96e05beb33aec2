"""The cuDNN backend: regions as cuDNN graphs."""

from collage_evo_cuda.cudnn.backend import CudnnBackend

__all__ = ["CudnnBackend"]
