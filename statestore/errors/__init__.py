"""Every error that statestore raises on purpose, under one root.

StateStoreError
├── FormatError                 bytes do not follow the layout they should have
│   ├── TruncatedError          they end before the layout does
│   ├── VarintError             a varint is longer than five bytes
│   └── NegativeLengthError     a length field is negative where the layout has no meaning for it
├── SerdeError                  a serde could not do its work
│   ├── SerializationError
│   └── DeserializationError
├── StoreError                  a store can't do what it was asked
│   ├── StoreClosedError
│   ├── StoreFormatError        the recorded format is not the one asked for
│   ├── UnknownColumnFamilyError  a database has a column family that no such store has
│   ├── UnknownEntryError       something stands where only segments of the store may be
│   ├── LocalStateLockedError   another process has the local database open
│   └── LocalStateCorruptedError  RocksDB found damage in the local database
├── LocationError               the durable location can't be used
│   ├── LocationNotWritableError
│   ├── LocationInUseError      it belongs to another query
│   └── LocationMismatchError   the Spark checkpoint belongs to another location
├── RecoveryError               committed state can't be read back
│   ├── DurableFileMissingError
│   ├── DurableFileCorruptedError
│   └── CommitPointerError      the pointer in Spark's state is not one of ours
├── TopologyError               a topology is wrong in itself
│   ├── TopologyChangedError    it is not the one that the state was made with
│   └── ShardCountChangedError
├── InputError                  the input can't be processed
│   ├── InputSchemaError        a column is missing, unknown or of the wrong type
│   ├── NullKeyError
│   ├── InvalidTimestampError
│   └── UnknownTopicError
├── HeadersFrozenError          read-only headers were to be changed
├── ProcessorError              user code raised: names node and record, the cause is chained
└── HarnessError                what tests and demos run beside Spark can't be had
    ├── JavaNotFoundError
    ├── JarsUnavailableError    the Java registry did not hand out a set of jars
    └── KafkaBrokerError        the broker did not start, or refused a command

Programmer mistakes (a negative count, a wrong argument type) raise ValueError or TypeError instead. Messages say what
is wrong, where it is, and what the operator can do; the same facts are fields of the exception.
"""

from statestore.errors.data import (
    DeserializationError,
    FormatError,
    HeadersFrozenError,
    NegativeLengthError,
    SerdeError,
    SerializationError,
    TruncatedError,
    VarintError,
)
from statestore.errors.harness import (
    HarnessError,
    JarsUnavailableError,
    JavaNotFoundError,
    KafkaBrokerError,
)
from statestore.errors.root import (
    StateStoreError,
)
from statestore.errors.run import (
    InputError,
    InputSchemaError,
    InvalidTimestampError,
    NullKeyError,
    ProcessorError,
    ShardCountChangedError,
    TopologyChangedError,
    TopologyError,
    UnknownTopicError,
)
from statestore.errors.state import (
    CommitPointerError,
    DurableFileCorruptedError,
    DurableFileMissingError,
    LocalStateCorruptedError,
    LocalStateLockedError,
    LocationError,
    LocationInUseError,
    LocationMismatchError,
    LocationNotWritableError,
    RecoveryError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    UnknownColumnFamilyError,
    UnknownEntryError,
)

__all__ = [
    "CommitPointerError",
    "DeserializationError",
    "DurableFileCorruptedError",
    "DurableFileMissingError",
    "FormatError",
    "HarnessError",
    "HeadersFrozenError",
    "InputError",
    "InputSchemaError",
    "InvalidTimestampError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "KafkaBrokerError",
    "LocalStateCorruptedError",
    "LocalStateLockedError",
    "LocationError",
    "LocationInUseError",
    "LocationMismatchError",
    "LocationNotWritableError",
    "NegativeLengthError",
    "NullKeyError",
    "ProcessorError",
    "RecoveryError",
    "SerdeError",
    "SerializationError",
    "ShardCountChangedError",
    "StateStoreError",
    "StoreClosedError",
    "StoreError",
    "StoreFormatError",
    "TopologyChangedError",
    "TopologyError",
    "TruncatedError",
    "UnknownColumnFamilyError",
    "UnknownEntryError",
    "UnknownTopicError",
    "VarintError",
]
