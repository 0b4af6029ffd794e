"""Run sweeps on this machine or on a Slurm cluster. Facts about a site live in profiles.toml."""
