"""Text mined from wheels: the corpora `desk`, `desk-views`, `wide` and `functions`."""
