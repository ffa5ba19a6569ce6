"""Aggregates of keys, windows and sessions.

aggregable_stream what streams have in common that can be aggregated; grouped_stream: by key, and by window
several_aggregates
                  several at once, of columns; aggregate: one of them; column_kinds: of which types it can be
"""
