"""What runs: a processor for each operator, each made of a plan that travels to the executors, as `planned` has it.

stateless         filters and mappers
deduplicating     leaves out what came before, of records by themselves and in columns
aggregating       without windows; aggregating_columns: in columns
windows           with windows of time and sessions, and when windows close
suppressing       holds changes back in a suppression_buffer; time_queue: what is to be done when, in order of time
tables            tables of topics, and filters and mappers of tables; table_views: how others read what a table holds
joining           what all joins do; stream_table_joining, table_table_joining, stream_stream_joining: each of them
changes_out       how changes go on, one by one or the last of each key and batch, also in columns

Imports `processor`, `stores` and below, and of its package what is plain data, as `change`, `windows`, `header_policy`.
Start at `aggregating`.
"""
