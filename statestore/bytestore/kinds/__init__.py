"""What a kind of store keeps where, and how all of them are read alike: `store_spec` first, then `kind_layout`.

store_spec      what is recorded of a store, its kind and format in one word, and its column family
kind_layout     the table of kinds: keys, times, segments, rows of versions. To add a kind, add its class there
segments        time segments; versioned_rows: rows of versions, written and read
entry_scan      the pairs that may hold what is asked for; entries of them, as rows of Arrow

Imports `engines`; stores, `recovery` and the tools import it. Start at `store_spec`.
"""
