"""The Spark data source `headerstate`: state as rows, its changes as rows, and new state from rows.

source          what Spark runs where; options: its options
committed       which state is meant; checkpoint_service: asks a Spark checkpoint for it
store_scan, row_filter, planned_filters
                a shard's entries as columns, and only those that pass Spark's filters
read_as         how keys and values are shown
change_feed     records of deltas between two batches
writer          new state from a DataFrame; row_placement, filling: puts each row into its shard, and writes shards

Imports `recovery`, `stores` and a few modules of `spark`. Start at `source`.
"""
