"""statestore: a header-aware state store for Spark Structured Streaming.

Records keep their Kafka headers inside state. Formats, names and semantics are those of Kafka Streams (KIP-1271).
The Spark side is `statestore.spark.stateful` and `statestore.spark.reader`; everything else is here.
"""

from statestore.errors import StateStoreError
from statestore.format.serde import Serde, Serdes
from statestore.headers import Header, Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import Processor
from statestore.processor.record import Record, RecordMetadata
from statestore.processor.topology import Topology
from statestore.stores.builder import StoreBuilder, Stores
from statestore.stores.key_value import TimestampedKeyValueStoreWithHeaders
from statestore.stores.value_timestamp_headers import ValueTimestampHeaders

__all__ = [
    "Header",
    "Headers",
    "Processor",
    "ProcessorContext",
    "Record",
    "RecordMetadata",
    "Serde",
    "Serdes",
    "StateStoreError",
    "StoreBuilder",
    "Stores",
    "TimestampedKeyValueStoreWithHeaders",
    "Topology",
    "ValueTimestampHeaders",
]
