"""Files, stages and leases: paths, atomic writes, locks and shared folders. Nothing here depends on a run."""
