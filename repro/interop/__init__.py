"""In and out: other people's checkpoints and libraries."""
