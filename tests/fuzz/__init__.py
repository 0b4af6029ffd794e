"""Bad input for every verb and every reader of other people's files; from fixed seeds."""
