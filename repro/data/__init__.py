"""Training pairs and retrieval collections: sources of text, readers and file formats."""
