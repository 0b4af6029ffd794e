"""Training: losses, the gradient cache and the training loop."""
