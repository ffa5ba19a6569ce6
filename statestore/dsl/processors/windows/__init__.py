"""Aggregates by windows, and when windows close.

closing                   what is late and what is final, by records and in columns, also after a rescaling
windowed_aggregating      windows of time, and what all aggregates by windows share, by records and in columns
sliding_aggregating       sliding windows, by records
session_aggregating       sessions, by records and in columns; session_merging: which sessions become one, for both
final_windows             windows that are emitted once, when they close, by records and in columns

Imports the aggregates of `processors` without windows. Whatever waits for event time imports `closing`.
Start at `closing`.
"""
