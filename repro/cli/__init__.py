"""The verbs of `repro`."""
