"""What runs: a processor for each operator, each made by a plan that travels to the executors.

stateless, stateless_columns
                  filters and mappers
deduplicating, deduplicating_columns
                  leave out what came before
aggregating       without windows; windowed_aggregating: with windows of time; aggregating_columns,
                  windowed_aggregating_columns: the same in columns, with what column_updates makes of them
sliding_aggregating, session_aggregating
                  with windows that records make; session_aggregating_columns: sessions in columns, as session_merging
                  makes them of records
final_windows     those put out when they close; final_window_columns: in columns
suppressing       holds changes back in a suppression_buffer; time_queue: what is to be done when, in order of time
tables            tables of topics, and filters and mappers of tables; table_views: how others read what a table holds
joining           what all joins do; stream_table_joining, table_table_joining, stream_stream_joining: each of them
changes_out       how changes go on, one by one or the last of each key and batch; column_changes: in columns

Imports `processor`, `stores` and below, and of its package what is plain data, as `change`, `windows`, `header_policy`.
Start at `aggregating`.
"""
