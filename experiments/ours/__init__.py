"""Experiments on our own questions, which no paper asks."""
