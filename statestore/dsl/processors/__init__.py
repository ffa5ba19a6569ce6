"""What runs: a processor for each operator, made of a plan that travels to the executors (see `planned`).

stateless         filters and mappers
deduplicating     drops duplicates, by records and in columns
aggregating       aggregates without windows; aggregating_columns: in columns; regrouping: of grouped tables
windows           aggregates by window of time and session, and when windows close
suppressing       holds changes back in a suppression_buffer; suppressing_columns: in columns
time_queue        keys in order of the time when they are due
tables            tables of topics, filters and mappers of tables; table_views: how others read what a table holds
joins             joins of streams and tables
fixed_key         users' processors that may not change keys
changes_out       how changes go on: one by one, or only the last of each key and batch; also in columns

Imports `processor`, `stores` and below, and plain data of its package, such as `change`, `windows`, `header_policy`.
Start at `aggregating`.
"""
