"""Ready-made parts of topologies: each is a function that returns an Operator, which a topology adds.

per_key        a processor that is handed a key's rows together; state_handle: what it asks for its states and timers
keyed_state    values, lists and maps of one key; timers: timers of keys

Imports `processor` and `stores`; `spark` imports it, and `statestore` offers some of it to users. Start at `per_key`.
"""
