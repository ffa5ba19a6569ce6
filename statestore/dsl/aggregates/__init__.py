"""Aggregates of keys, windows and sessions.

aggregations      what is kept of a key for each aggregate, by records and in columns: a new one begins here
aggregable_stream what streams have in common that can be aggregated; grouped_stream: by key, and by window
several_aggregates
                  several at once, of columns; aggregate: one of them, and of which types it can be
"""
