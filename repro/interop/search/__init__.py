"""Search a corpus with a model from the command line; a query needs neither torch nor transformers."""
