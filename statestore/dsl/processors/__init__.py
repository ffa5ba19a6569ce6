"""What runs: a processor for each operator, each made by a plan that travels to the executors.

stateless         filters and mappers; aggregating: without windows; windowed_aggregating: with windows of time
sliding_aggregating, session_aggregating: with windows that records make; final_windows: those put out when they close
time_queue        what is to be done when, in order of time
tables            tables of topics, and filters and mappers of tables; table_views: how others read what a table holds
joining           what all joins do; stream_table_joining, table_table_joining, stream_stream_joining: each of them
changes_out       how changes go on: one by one, or the last of each key and batch

Imports `processor`, `stores` and below, and of its package what is plain data: `change`, `windows`, `header_policy`.
"""
