"""Candidates for rewrites: subgraphs of known networks, each in the form of the file and in equal other forms."""

from rewrite_forms import convolutions, light, products, spatial
from rewrite_forms.form import CANDIDATES, Candidate

__all__ = ["CANDIDATES", "Candidate", "convolutions", "light", "products", "spatial"]
