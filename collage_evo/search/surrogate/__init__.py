"""Surrogate: a cost model that learns from measured placements."""
