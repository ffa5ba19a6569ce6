"""Turns DataFrames into records and back, and works on them.

to_records, from_records
                business columns in and out; encodings: serdes as expressions of Spark's engine
per_key         processors of a key's rows with pandas; each_record: a call for each record
dataframe_middleware
                interceptors on a DataFrame without state
dataframe_streams
                programs of the DSL on any columns
compaction      compaction by a key in a header
"""
