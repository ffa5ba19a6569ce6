"""States that no query made: filled from entries of any origin or from a state with other shards.

new_state         the one maker: claims a location, goes on with a request, checks, completes
state_filling     takes the entries of shards, and writes them as deltas in bounded memory
header_expiries   what says when entries expire, made of their headers
shard_contents    a shard to be read back; logical_writes: what its stores hold, as writes; tally: what is compared
rescale           a state with other shards: carry_over, version_order, rescale_report
placement         which shard an entry belongs to; record_keys: the record's key in the keys that the library makes

Imports all other rooms of `recovery`; Spark's side and the tools import it. Start at `new_state`.
"""
