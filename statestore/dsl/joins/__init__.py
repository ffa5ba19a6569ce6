"""Joins of streams and tables.

stream_joins      the nodes and stores of joins of streams; table_joins: of two tables
joined            how joins keep what waits
"""
