"""Joins of streams and tables.

stream_joins      the nodes and stores of joins of streams; table_joins: of two tables
foreign_key_joins the nodes, stores and topics of joins of two tables by a foreign key
joined            how joins keep what waits
"""
