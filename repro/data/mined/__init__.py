"""Text mined from installed wheels: the corpora of `desk` and `lab`."""
