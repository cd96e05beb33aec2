"""A cost model that learns from measured placements."""
