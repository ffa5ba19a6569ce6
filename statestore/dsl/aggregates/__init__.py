"""Aggregates of keys, windows and sessions; how each is computed, by records and in columns, is in `aggregations`.

aggregable_stream what streams have in common that can be aggregated; grouped_stream: by key, and by window
several_aggregates
                  several at once, of columns; aggregate: one of them, and of which types it can be
"""
