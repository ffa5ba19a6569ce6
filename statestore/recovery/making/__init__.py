"""States that no query made: filled from entries of any origin or from a state with other shards."""
