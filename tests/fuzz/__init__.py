"""Malformed input for every command and every reader of foreign files, from fixed seeds."""
