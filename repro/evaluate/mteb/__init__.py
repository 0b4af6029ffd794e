"""Adapters to mteb: our models as mteb models, our collections as mteb tasks."""
