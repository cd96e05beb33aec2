"""Compiles regions and whole models, and keeps what was compiled."""
