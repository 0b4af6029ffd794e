"""`python -m repro`: the same as the console script `repro`."""

from repro.cli.main import main

main()
