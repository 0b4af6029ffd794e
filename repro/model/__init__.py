"""The two architectures of the paper over transformers' own backbones."""
