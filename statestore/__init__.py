"""statestore: a header-aware state store for Spark Structured Streaming.

Records keep their Kafka headers inside state. Formats, names and semantics are those of Kafka Streams (KIP-1271).
The Spark side is `statestore.spark`; everything else is here.
"""

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.errors import StateStoreError
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serde, Serdes
from statestore.format.serde_columns import ColumnSerde
from statestore.headers import ConsumerRecord, Header, Headers, ProducerRecord, TimestampType
from statestore.headers.record_columns import RecordColumns
from statestore.operators.keyed_state import KeyScope, ListState, MapState, ValueState, keyed_state_store
from statestore.operators.per_key import ExpiredTimer, KeyContext
from statestore.operators.state_handle import StatefulProcessorHandle
from statestore.processor.batch_processor import BatchProcessor
from statestore.processor.context import ProcessorContext
from statestore.processor.description import TopologyDescription
from statestore.processor.processor import Processor
from statestore.processor.punctuation import Cancellable, PunctuationType
from statestore.processor.record import Record, RecordMetadata
from statestore.processor.topology import Topology
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.restore.progress import StateRestoreListener
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.stores.builder import StoreBuilder
from statestore.stores.entry_columns import HeldColumns
from statestore.stores.headers_bytes_store import HeaderBytesStore, HeadersBytesStore
from statestore.stores.holders import (
    AggregationWithHeaders,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    VersionedRecordWithHeaders,
)
from statestore.stores.iterator import StoreIterator, Windowed
from statestore.stores.key_value import (
    KeyValueStore,
    ReadOnlyKeyValueStore,
    TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders,
)
from statestore.stores.session import (
    ReadOnlySessionStore,
    ReadOnlySessionStoreWithHeaders,
    SessionStore,
    SessionStoreWithHeaders,
)
from statestore.stores.state_serdes import StateSerdes
from statestore.stores.stores import Stores
from statestore.stores.versioned import (
    ReadOnlyVersionedKeyValueStore,
    ResultOrder,
    VersionedKeyValueStore,
    VersionedKeyValueStoreWithHeaders,
)
from statestore.stores.window import (
    ReadOnlyWindowStore,
    TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders,
    WindowStore,
)

__all__ = [
    "AggregationWithHeaders",
    "BatchProcessor",
    "Cancellable",
    "ColumnSerde",
    "ConsumerRecord",
    "DurableLocation",
    "ExpiredTimer",
    "Header",
    "HeaderBytesStore",
    "Headers",
    "HeadersBytesStore",
    "HeldColumns",
    "KeyContext",
    "KeyGroups",
    "KeyScope",
    "KeyValueStore",
    "ListState",
    "LocalDirectory",
    "MapState",
    "Processor",
    "ProcessorContext",
    "ProducerRecord",
    "PunctuationType",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlySessionStoreWithHeaders",
    "ReadOnlyVersionedKeyValueStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordColumns",
    "RecordMetadata",
    "RecoveryOptions",
    "ResultOrder",
    "Serde",
    "Serdes",
    "SessionStore",
    "SessionStoreWithHeaders",
    "StateRestoreListener",
    "StateSerdes",
    "StateStoreError",
    "StatefulProcessorHandle",
    "StoreBuilder",
    "StoreIterator",
    "Stores",
    "TaskDirectory",
    "TimestampType",
    "TimestampedKeyValueStore",
    "TimestampedKeyValueStoreWithHeaders",
    "TimestampedWindowStore",
    "TimestampedWindowStoreWithHeaders",
    "Topology",
    "TopologyDescription",
    "ValueAndTimestamp",
    "ValueState",
    "ValueTimestampHeaders",
    "VersionedKeyValueStore",
    "VersionedKeyValueStoreWithHeaders",
    "VersionedRecord",
    "VersionedRecordWithHeaders",
    "WindowStore",
    "Windowed",
    "keyed_state_store",
]
