"""The judge: the only comparison of records with the paper."""
