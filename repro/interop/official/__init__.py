"""The authors' checkpoints, cde-small-v1 and cde-small-v2."""
