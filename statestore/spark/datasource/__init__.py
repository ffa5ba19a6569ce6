"""The Spark data source `headerstate`: state as rows, its changes as rows, and new state from rows.

source          what Spark runs where; options: what it is told
committed       which state is meant; checkpoint_service: asks a Spark checkpoint for it
store_scan, row_filter, planned_filters
                a shard's entries, as columns, and only those that are asked for
read_as         what keys and values are shown as
change_feed     records of deltas between two batches
writer          new state of a DataFrame; row_placement, filling: each row in its shard, and the shard written

Imports `recovery`, `stores` and a few modules of `spark`; `spark` hands out its doors. Start at `source`.
"""
