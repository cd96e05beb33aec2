"""Compiles regions and whole models, and keeps what was compiled.

What a batch of matches lacks is compiled first (``measure/builders.py``): in processes of their own, one a
core, distinct regions once. Placements are compiled a few ahead of what is measured (``measure/compile_ahead.py``),
and measured in the order in which they are ready; an engine of which a piece took long has half of these processes,
so that others are not kept waiting. Pieces go by way of the cache on disk; a region that cannot be compiled is known
by its reason for the rest of the run, one that hung or took too much memory after a second attempt. A cluster's
workers compile what they are asked to measure.

Pieces lie in the cache with their digests and the run that built them (``measure/build/cache.py``). One of another
run is read once more before it is used, and built again where it is not as it was put there. If the job then
crashes or raises nevertheless, its pieces of other runs are built again and the job is done once more, before it
counts against the backend: a cost is kept for good. That finds damage, not malice: pieces are code, so a cache that
others may write into is refused before anything is read (``target/private.py``). A record lies in each piece's
directory and not in one database, because the machines of a cluster write there over NFS. The whole is walked, to
drop what is longest unused, only after a process has put a sixteenth of ``cache.max_gb``.
"""
