"""Search a corpus with a model from the command line."""
