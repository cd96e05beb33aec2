"""Commands other than run and resume: compare, explain, pick, sweep, tune."""
