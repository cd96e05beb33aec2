"""cuDNN's graphs as a backend."""

from collage_evo.backends.cudnn.backend import CudnnBackend

__all__ = ["CudnnBackend"]
