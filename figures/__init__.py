"""Draw each kind of picture. Nothing in this package depends on an experiment, a run or a record."""
