"""The contract of a backend, and one package for each library."""
