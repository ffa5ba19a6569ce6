"""The bridge to Spark Structured Streaming: pack, shard call, unpack, and two drivers of the same call."""

from statestore.spark.each_record import for_each_record
from statestore.spark.per_key import HeaderStatefulProcessor, per_key_topology
from statestore.spark.reader import read_pointers, read_store
from statestore.spark.rescale import rescale
from statestore.spark.source_offsets import read_source_offsets
from statestore.spark.stateful import stateful

__all__ = [
    "HeaderStatefulProcessor",
    "for_each_record",
    "per_key_topology",
    "read_pointers",
    "read_source_offsets",
    "read_store",
    "rescale",
    "stateful",
]
