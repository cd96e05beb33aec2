"""The backend contract, and one package for each library on the CPU."""
