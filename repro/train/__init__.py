"""The loss, the gradient cache and the training loop."""
