"""A reader's own corpus: read, audited, held out, kept."""
