"""The layouts of a store's keys, and where a record's key belongs.

window_key, time_key_columns
                of windows and sessions
due_key, entry_key
                of what is due at a time, and of keyed state
partitioner     Kafka's partition of a record's key
"""
