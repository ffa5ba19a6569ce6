"""From what is durable to a version of a shard: a snapshot, then the deltas after it.

from_snapshots  which ways there are to a version, and a snapshot fetched and checked
from_deltas     deltas brought into the stores of a copy; delta_columns: their columns, for readers without a database
progress        what a listener and the log are told

Imports `commit` and `location`; `local`, `snapshots` and `shard_batch` import it. Start at `from_deltas`.
"""
