"""The TVM backend."""

from collage_evo.backends.tvm.backend import TvmBackend

__all__ = ["TvmBackend"]
