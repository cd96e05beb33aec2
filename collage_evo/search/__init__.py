"""Placements as genomes, and the search for the fastest."""
