"""Ready-made parts of processors: state of one key, timers, and processors that are handed a key's rows together."""
