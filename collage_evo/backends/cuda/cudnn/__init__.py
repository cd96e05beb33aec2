"""The cuDNN backend: regions as cuDNN graphs."""

from collage_evo.backends.cuda.cudnn.backend import CudnnBackend

__all__ = ["CudnnBackend"]
