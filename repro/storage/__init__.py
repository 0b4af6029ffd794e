"""Files: where they lie, how they appear whole, who works on them, which are shared; knows no run."""
