"""From what is durable to a version of a shard: a snapshot, then the deltas after it."""
