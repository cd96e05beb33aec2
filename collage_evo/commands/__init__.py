"""Commands besides run and resume: compare, recheck, explain, pick, sweep, tune."""
