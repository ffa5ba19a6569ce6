"""The layouts of a store's values.

store_format    which there are
value_timestamp_headers, versioned_row
                each of them
stored_value, stored_columns
                all of them side by side
buffered_record, waiting_values, passed_times
                what waits in buffers and joins, and what deduplication keeps; buffered_columns: in columns
subscriptions   what the tables of a foreign-key join say to each other
"""
