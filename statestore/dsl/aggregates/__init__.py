"""Aggregates of keys, windows and sessions.

aggregable_stream what streams have in common that can be aggregated: grouped_stream, windowed_stream
several_aggregates
                  several at once, of columns; aggregate: one of them; column_kinds: of which types it can be
row_serde         values that are rows, with types that are known
"""
