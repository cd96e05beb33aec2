"""Genetic search for the fastest placement: loop, seeds, mixtures of precisions, learned cost model, tuning."""
