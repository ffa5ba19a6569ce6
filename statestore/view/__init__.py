"""Interactive queries: a committed state, read from any Python process, without Spark and without Java.

state_view      StateView: which batch it is at, its stores, and how it goes on to the next batch
store_types     QueryableStoreTypes: what a store is asked for as
notebook        how a view shows itself
open_shards     the shards that are open, in local copies of the view's own
sharded_store   a store over all shards: where a key is, what a shard holds, and all shards as one map of bytes
routed_reads    the read-only classes of stores over that: reads of one key go to its shard

Imports `stores` and below; tools and the data source may import it. Start at `state_view`.
"""

from statestore.view.state_view import StateView
from statestore.view.store_types import QueryableStoreTypes

__all__ = ["QueryableStoreTypes", "StateView"]
