"""The ncnn backend."""

from collage_evo.backends.ncnn.backend import NcnnBackend

__all__ = ["NcnnBackend"]
