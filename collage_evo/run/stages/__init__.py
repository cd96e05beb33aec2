"""The stages of a run: each takes the run and what the stages before gave."""
