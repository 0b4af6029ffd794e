"""Text mined from wheels: the corpora `desk`, `lab`, `wide` and `functions`."""
