"""Aggregates by windows, and when windows close.

closing                   what is late and what is final, of one time and of columns, also after a rescaling
windowed_aggregating      windows of time, and what all have in common, by records and in columns
sliding_aggregating       windows that records make
session_aggregating       sessions, by records and in columns; session_merging: what becomes one, for both
final_windows             those put out when they close, by records and in columns

Imports what `processors` has for keys without windows. Whatever waits for event time imports `closing`.
Start at `closing`.
"""
