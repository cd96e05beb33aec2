"""Placements as genomes: search space, genome, encoding and decoding, variation, selection; and what is known of a
placement: cost model, outcome, failure.

``cover/`` is the exact dynamic program: decoding completes a genome that is no cover by it.
"""
