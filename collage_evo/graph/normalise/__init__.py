"""Normalisation: the plain form of a model that the search works on, and the rules that lead to it."""
