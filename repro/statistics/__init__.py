"""Statistics: compares records with the paper's claims."""
