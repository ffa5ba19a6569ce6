"""statestore: a header-aware state store for Spark Structured Streaming.

Records keep their Kafka headers inside state. Formats, names and semantics are those of Kafka Streams (KIP-1271).
The Spark side is `statestore.spark`; everything else is here, headers also in `statestore.headers`.

Layers, each of which imports only later ones: spark and testing; dsl; operators; processor; middleware; interception;
view; stores; recovery; bytestore; connect and kip82; headers; format; errors. `docs/architecture.md` says what is
where. Start at `processor.topology`, which a user declares, or at `spark.shards.shard_call`, which runs it.

A module with `__all__` is public and promises what it lists; one without is private.
"""

import sys as _sys

from statestore.errors.run import OperatingSystemError as _OperatingSystemError

if _sys.platform == "win32":
    raise _OperatingSystemError(system="Windows")

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.errors import StateStoreError
from statestore.format.serde import Serde, Serdes
from statestore.format.serde_columns import ColumnSerde
from statestore.format.values.store_format import StoreFormat
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Header, Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.operators.keyed_state import KeyedList, KeyedMap, KeyedValue, KeyScope, keyed_state_store
from statestore.operators.per_key import ExpiredTimer, KeyContext
from statestore.operators.state_handle import StatefulProcessorHandle
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.punctuation import PunctuationType
from statestore.processor.record import Record
from statestore.processor.topology import Topology
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from statestore.recovery.restore.restore import StateRestoreListener
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.stores.builder import StoreBuilder
from statestore.stores.codec import StateSerdes
from statestore.stores.holders import (
    AggregationWithHeaders,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    VersionedRecordWithHeaders,
)
from statestore.stores.iterator import Windowed
from statestore.stores.key_value import KeyValueStore, TimestampedKeyValueStore, TimestampedKeyValueStoreWithHeaders
from statestore.stores.session import ReadOnlySessionStoreWithHeaders, SessionStore, SessionStoreWithHeaders
from statestore.stores.stores import Stores
from statestore.stores.typed_store import HeaderBytesStore, HeadersBytesStore
from statestore.stores.versioned import ResultOrder, VersionedKeyValueStore, VersionedKeyValueStoreWithHeaders
from statestore.stores.window import TimestampedWindowStore, TimestampedWindowStoreWithHeaders, WindowStore

__version__ = "0.1.0"
"""The release: the one place that says it, so that it is known where the package was not installed, but sent along."""

__all__ = [
    "AggregationWithHeaders",
    "BatchProcessor",
    "ColumnSerde",
    "ConsumerRecord",
    "DurableLocation",
    "ExpiredTimer",
    "Header",
    "HeaderBytesStore",
    "Headers",
    "HeadersBytesStore",
    "KeyContext",
    "KeyScope",
    "KeyValueStore",
    "KeyedList",
    "KeyedMap",
    "KeyedValue",
    "Processor",
    "ProcessorContext",
    "ProducerRecord",
    "PunctuationType",
    "ReadOnlySessionStoreWithHeaders",
    "Record",
    "RecordColumns",
    "RecoveryOptions",
    "ResultOrder",
    "Retrying",
    "Serde",
    "Serdes",
    "SessionStore",
    "SessionStoreWithHeaders",
    "StateRestoreListener",
    "StateSerdes",
    "StateStoreError",
    "StatefulProcessorHandle",
    "StoreBuilder",
    "StoreFormat",
    "StoreKind",
    "StoreSpec",
    "Stores",
    "TaskDirectory",
    "TimestampedKeyValueStore",
    "TimestampedKeyValueStoreWithHeaders",
    "TimestampedWindowStore",
    "TimestampedWindowStoreWithHeaders",
    "Topology",
    "ValueAndTimestamp",
    "ValueTimestampHeaders",
    "VersionedKeyValueStore",
    "VersionedKeyValueStoreWithHeaders",
    "VersionedRecord",
    "VersionedRecordWithHeaders",
    "WindowStore",
    "Windowed",
    "keyed_state_store",
]
