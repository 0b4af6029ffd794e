"""Run the experiments: data, model, training, evaluation and reports. Importing this package does not load torch."""

from repro.import_hooks import install as _install_import_hooks

_install_import_hooks()
