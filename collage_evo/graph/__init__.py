"""Models as graphs: read, made ready, normalised, cut."""
