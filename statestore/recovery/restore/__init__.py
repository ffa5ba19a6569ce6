"""From what is durable to a version of a shard: a snapshot, then the deltas after it.

restore         a snapshot fetched and checked, and deltas brought into the stores of a copy
delta_columns   the columns of deltas, for readers without a database
progress        what a listener and the log are told

Imports `commit` and `location`; `local`, `snapshots` and `shard_batch` import it. Start at `restore`.
"""
