"""Genetic search for the fastest placement, with genomes, seeds, exact covers and a learned cost model."""
