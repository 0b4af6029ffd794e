"""Compare records with the claims of the paper."""
