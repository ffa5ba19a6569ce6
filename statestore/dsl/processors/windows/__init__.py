"""Aggregates by windows, and when windows close.

closing                   what is late and what is final, of one time and of columns, also after a rescaling
windowed_aggregating      windows of time, and what all have in common; windowed_aggregating_columns: in columns
sliding_aggregating       windows that records make
session_aggregating       sessions; session_aggregating_columns: in columns; session_merging: what becomes one, for both
final_windows             those put out when they close; final_window_columns: in columns

Imports what `processors` has for keys without windows. Whatever waits for event time imports `closing`.
Start at `closing`.
"""
