"""How the experiments are carried out: one model, trainer, evaluator and judge. Importing this loads no torch."""

from repro.doors import install as _install_doors

_install_doors()
