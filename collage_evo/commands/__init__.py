"""Commands other than run and resume: compare, recheck, explain, pick, sweep, tune."""
