"""Regions that run side by side: takes another backend's pieces for one thread, gives one for all cores."""

from collage_evo.backends.lanes.backend import LanesBackend

__all__ = ["LanesBackend"]
