"""Files of a state location, as the query's runs left them.

files          which files each shard has, by their names; deltas: one delta file
garbage        finds what no retained version needs, and removes it if asked to
rescale        the state with another number of shards, or as it was at an earlier batch

Imports `states`; `check` and the commands in `cli` import it. Start at `files`.
"""
