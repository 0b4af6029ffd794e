"""Training pairs and retrieval collections: where text comes from, and in what shape it is handed on."""
