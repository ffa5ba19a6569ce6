"""What is recorded of a state as a whole: its stores and shards, who owns it, and how starts agree on it."""
