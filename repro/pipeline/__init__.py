"""From a run to its inputs: corpora, the stages built from them, and the loaded data."""
