"""The bridge to Spark Structured Streaming: pack, shard call, unpack, and two drivers of the same call."""

from statestore.spark.reader import read_pointers, read_store
from statestore.spark.stateful import stateful

__all__ = ["read_pointers", "read_store", "stateful"]
