"""The authors' checkpoints, cde-small-v1 and cde-small-v2."""

from repro.interop.official.folder import RELEASES, is_official, load_official

__all__ = ["RELEASES", "is_official", "load_official"]
