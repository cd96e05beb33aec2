"""Devices beside the processor: their memory, their stream of work, what was captured of it, their clocks."""
