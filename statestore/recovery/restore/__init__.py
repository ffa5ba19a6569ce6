"""From what is durable to a version of a shard: a snapshot, then the deltas after it.

restore         a snapshot fetched and checked, deltas brought into the stores of a copy, and progress reported
delta_columns   the columns of deltas, for readers without a database

Imports `commit` and `location`; `local`, `snapshots` and `shard_batch` import it. Start at `restore`.
"""
