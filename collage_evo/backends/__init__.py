"""The backend contract, and one package for each library."""
