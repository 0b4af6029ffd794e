"""Declare the experiments, one file each: its runs, its claims and the artefacts it shows."""
