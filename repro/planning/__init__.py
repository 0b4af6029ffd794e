"""What a set of runs would cost, and what this machine still lacks for it."""
