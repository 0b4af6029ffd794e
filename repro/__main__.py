"""Run `python -m repro`, which equals the console script `repro`."""

from repro.cli.main import main

main()
