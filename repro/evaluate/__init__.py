"""Scores: retrieval, collections of datasets, and the statistics that judge them."""
