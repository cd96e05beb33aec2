"""oneDNN as a backend."""

from collage_evo.backends.onednn.backend import OneDnnBackend

__all__ = ["OneDnnBackend"]
