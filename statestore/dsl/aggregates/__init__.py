"""Aggregates by key, window and session; `aggregations` says how each is computed, by records and in columns.

aggregable_stream what all streams that can be aggregated share; grouped_stream: streams by key, and by window
several_aggregates
                  several aggregates of columns at once; aggregate: one of them, and the types that it takes
"""
