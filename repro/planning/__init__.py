"""Costs and requirements of runs, and checks of this machine."""
