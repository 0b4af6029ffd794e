"""What a run leaves: its record, how its numbers came about, and the one look-up of a run by its id."""
