"""The authors' checkpoints, cde-small-v1 and cde-small-v2, in and out."""

from repro.interop.official.folder import RELEASES, export_official, is_official, load_official

__all__ = ["RELEASES", "export_official", "is_official", "load_official"]
