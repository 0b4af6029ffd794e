"""Which pairs meet in one batch: clusters, packing, the false-negative filter and the sampler."""
