"""How a kind of picture is drawn; nothing here knows an experiment, a run or a record."""
