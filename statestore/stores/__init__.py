"""Typed stores, what they hold, and the builders that describe them.

stores          Stores: the factories of all others; supplier, builder: what a user says of one, and its layers
part_store      one that a ready-made part brings along
key_value, versioned, window, session
                the stores; typed_store, readable_store: what they share; headers_bytes_store: those with headers
parts           what a store is made of; lineage: builders that were thrown away
codec           stored bytes and what is held; entry_codec, entry_columns: keys too, one by one and in columns
holders, iterator, state_serdes
                what users hold
layer           the layers below a store: metered with its metrics, expiring, caching, changelogging, retaining
segment_scan, segment_columns, read_forms
                reads of windows and sessions, and the forms of calling them

Imports `bytestore`, and of `recovery` the changelog; `operators` and `processor` import it, and the tools.
Start at `builder`.
"""
