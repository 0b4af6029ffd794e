"""The two architectures of the paper, built on transformers' backbones."""
