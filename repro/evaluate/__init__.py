"""Scoring: search, contexts, suites of datasets, paired comparison and mteb."""
