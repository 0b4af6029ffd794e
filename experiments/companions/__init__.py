"""Experiments of the companion papers: GTE (general text embeddings) and MRL (Matryoshka representation learning)."""
