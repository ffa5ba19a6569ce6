"""Typed stores, what they hold, and the builders that describe them.

stores          Stores: the factories of all others; supplier, builder: what a user says of one, and its layers
key_value, versioned, window, session
                the stores; readable_store, typed_store: what they share
holders, iterator
                what users hold
segment_columns windows and sessions in segments, and in columns
metrics         a store's metrics; metered: how they come about; layers: what stands below a store
codec           how entries become bytes and back, one by one and in columns; entry_codec: keys with headers

Imports `bytestore`, and of `recovery` the changelog; `operators` and `processor` import it, and the tools.
Start at `builder`.
"""
