"""States that no query made: filled from entries of any origin or from a state with other shards.

new_state         the one maker: claims a location, goes on with a request, checks, completes
state_filling     takes the entries of shards, and writes them as deltas in bounded memory
logical_writes    what the stores of a shard hold, as writes, and what is compared of them
rescale           a state with another number of shards; carry_over: what its pointers say
placement         which shard an entry belongs to, by the record's key in its key

Imports all other rooms of `recovery`; Spark's side and the tools import it. Start at `new_state`.
"""
