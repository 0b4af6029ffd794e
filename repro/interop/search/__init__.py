"""Search a corpus with a model from the command line. A query needs neither torch nor transformers."""
