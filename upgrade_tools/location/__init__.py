"""Files of a state location, worked on as the query's runs left them.

files          which files there are of each shard, told by their names; deltas: one delta file
garbage        what no retained version needs, removed if asked to
rescale, rollback
               the state with another number of shards, and as it was at an earlier batch

Imports `states`; `check` and the commands in `cli` import it. Start at `files`.
"""
