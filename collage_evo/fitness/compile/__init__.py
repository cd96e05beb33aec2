"""Compilation of regions and whole models, with a cache on disk.

The pieces that a batch of matches lacks are compiled first (``fitness/builders.py``): in separate processes, one a
core, distinct regions once. Placements are compiled a few ahead of the measurement (``fitness/builders.py``),
and measured in the order in which they are ready; an engine with a slow piece may use half of these processes, so
that other engines do not wait. Pieces pass through the cache on disk. The reason why a region cannot be compiled is
remembered for the rest of the run; a build that hung or took too much memory gets a second attempt. A cluster's
workers compile what they have to measure.

The cache stores pieces with their digests and the run that built them (``fitness/compile/cache.py``). A piece of
another run is verified before its first use, and rebuilt if its files changed. If the job then crashes or raises
nevertheless, its pieces of other runs are rebuilt and the job is repeated once, before the failure counts against the
backend: a recorded cost is permanent. That finds damage, not malice: pieces are code, so a cache that others may
write into is refused before anything is read (``hardware/private.py``).
"""
