"""What is run: one file an experiment, each only declaring its runs, its claims and what it shows."""
