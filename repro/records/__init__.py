"""Records of finished runs: storage, checks, provenance, and the lookup of runs by name or id."""
