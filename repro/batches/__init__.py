"""Batch construction: clustering, packing, the sampler and the false-negative filter."""
