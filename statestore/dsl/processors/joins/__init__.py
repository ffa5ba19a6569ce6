"""Joins of streams and tables.

joining                          what all joins share
stream_stream_joining            of two streams, by records; stream_stream_joining_columns: in columns
stream_table_joining             of a stream with a table
table_table_joining              of two tables by their keys; foreign_key_joining: by a key in the value

Imports tables and the closing of windows from `processors`. Start at `joining`.
"""
