"""Where it runs: this machine's queue or a Slurm cluster; the facts of a site are in profiles.toml."""
