"""How the experiments are carried out: one shared model, trainer, evaluator and judge. Importing this loads no torch."""
