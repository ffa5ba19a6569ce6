"""Every error that statestore raises on purpose, under one root.

StateStoreError
├── FormatError                 bytes do not follow the layout they should have
│   ├── TruncatedError          they end before the layout does
│   ├── VarintError             a varint is longer than five bytes, or than ten where it holds 64 bits
│   ├── NegativeLengthError     a length field is negative where the layout has no meaning for it
│   └── ChecksumError           they were changed after they were written
├── StoreError                  a store can't do what it was asked
│   ├── StoreClosedError
│   ├── StoreFormatError        the recorded format is not the one asked for
│   ├── UnknownColumnFamilyError  a database has a column family that no such store has
│   ├── UnknownEntryError       something stands where only segments of the store may be
│   ├── LocalStateLockedError   another process has the local database open
│   ├── LocalDiskFullError
│   ├── LocalStateCorruptedError  RocksDB found damage in the local database
│   └── SpilledDeltaCorruptedError  what a batch spilled does not read back
├── LocalDirectoryError         the directory for local copies can't be written
├── UnsafeNameError             a name that was read could lead out of where it belongs
├── LocationError               the durable location can't be used
│   ├── LocationNotWritableError
│   ├── LocationInUseError      it belongs to another query
│   ├── LocationSharedError     two operators of one query have it
│   ├── CheckpointLocationError  it and the Spark checkpoint lie in each other, or were mixed up
│   ├── SinkRemembersError      the output directory remembers batches of an older checkpoint
│   ├── LocationBusyError       somebody else is about to record what is fixed there
│   ├── StateUnfinishedError    a tool has begun to make a state there, and has not finished
│   ├── LocationMismatchError   the Spark checkpoint belongs to another location
│   ├── RunFencedError          another run of the query has taken over
│   ├── SnapshotOverdueError    a shard has had no snapshot for too long
│   ├── AttemptOutdatedError    the batch was committed by another attempt, and built on
│   ├── CheckpointBehindError   there are commits that the Spark checkpoint does not know
│   ├── CheckpointAbandonedError  a later run has given up the history of the Spark checkpoint
│   └── VersionCollectedError   files of the version to go back to were collected
├── RecoveryError               committed state can't be read back
│   ├── DurableFileMissingError
│   ├── DurableFileCorruptedError
│   ├── SnapshotFormatError     a newer release wrote the snapshot
│   ├── CommitPointerError      the pointer in Spark's state is not one of ours
│   ├── UnreadableCommitError   what a batch would commit could not be read by the next one
│   └── ChangesUnavailableError  what changed between two batches is not all there
├── NewStateError               a state can't be made in a new location
│   ├── TargetNotEmptyError     the new location holds something already
│   ├── TooManyShardsError      it was to have more shards than a state may have
│   ├── StatePointersError      commit pointers of shards are missing, or are another state's
│   ├── KeyPlacementError       an entry does not stand in the shard of its record key
│   ├── UnknownRecordKeyError   it can't be told which record keys a store's entries belong to
│   ├── StateCheckError         what was written is not what there was
│   └── ShardOverlapError       several tasks wrote to the same shard
├── StateDirectoryError         a directory of state can't be read or changed; it was left as it was
│   ├── DirectoryInUseError     a running application holds it
│   ├── DirectoryDamagedError   files are missing, cut or damaged
│   └── DirectoryNotAccessibleError  the operating system refuses access
├── TopologyError               a topology is wrong in itself
│   ├── TopologyChangedError    it is not the one that the state was made with
│   ├── EntryPointChangedError  the checkpoint was made through Spark's other entry point
│   ├── ShardCountChangedError
│   ├── AggregatesError         aggregates don't go with the records that they are of
│   ├── NotPicklableError       a part of it can't travel to Spark's workers
│   └── ModuleNotOnWorkersError  they can't import a module that it is of
├── ProcessorMetadataError      a shard has no room for one more name of processor metadata
├── SuppressionBufferFullError  a buffer of suppressed changes holds more than it may
├── InputError                  the input can't be processed
│   ├── InputSchemaError        a column is missing, unknown or of the wrong type
│   ├── RecordColumnsError      columns can't be made records, or records columns
│   ├── InputHeadersError       a header is none that Kafka has
│   ├── NullKeyError
│   ├── InvalidTimestampError
│   │   └── FutureTimestampError  it is too far ahead of the clock
│   ├── UnknownTopicError
│   └── StateRowError           a row can't be an entry of the store that it is meant for
├── StatePartitionsError        a query began with another number of state partitions than was planned
├── BatchNotEvaluatedError      the function of foreachBatch took some of a batch's rows only
├── OperatingSystemError        statestore does not run on the operating system
├── SparkVersionError           the Spark that is installed is too old, for all or for what was asked
├── ConnectServerError          the Python workers of a Spark Connect server lack what its client has
├── DataSourceOptionError       an option of the Spark data source is missing or wrong
├── DataFrameReusedError        Spark would mix up the filters of two uses of a DataFrame
├── HeadersFrozenError          read-only headers were to be changed
├── RecordSentError             a record was to be sent a second time
├── LossyHeadersError           headers hold what another form of them can't hold
├── UnknownHeaderError          a header's key has no id, or an id no key
├── ConnectException            a typed value, its conversion or its configuration is wrong; Kafka's names below it
│   ├── DataException           a value can't be what it is to be
│   │   ├── SchemaBuilderException  a schema is wrong in itself
│   │   ├── NullValueException  there is None where there has to be a value
│   │   └── NumberFormatException  a text that is to be a number is none
│   └── ConfigException         a property is missing or wrong
│       └── SerializationException  the encoding of a converter is unknown
├── MiddlewareError             middleware can't work as it was put together
│   ├── ChainIncompleteError    a chain lacks an interceptor that another one needs
│   ├── ChainOrderError         two interceptors stand in an order in which they can't work
│   ├── ExtraMissingError       a library that an application needs is not installed
│   ├── KeyUnusableError        a keyring has no active key, or one that can't do what it is for
│   └── HeaderRangeError        ranges of header ids overlap, or an id lies outside of its owner's
├── ServiceUnavailableError     what a serde or an interceptor asks does not answer: nothing is wrong with the data
│   └── RegistryUnavailableError  a schema registry does not
├── RecordError                 a record can't be read, processed or written; fields say which, none says what it holds
│   ├── SerdeError                  a serde could not do its work
│   │   ├── SerializationError
│   │   │   └── SchemaRejectedError  a schema registry does not take the schema of what is written
│   │   └── DeserializationError
│   │       ├── SchemaNotFoundError  a schema registry has no schema of the record's id
│   │       ├── SchemaIdError       a record names no schema, or by what is no id
│   │       ├── IncompatibleSchemaError  what a record holds can't be read with the reader's schema
│   │       └── UnknownContentTypeError  there is no format for a record's content type
│   ├── RecordRefusedError          an interceptor refuses a record
│   │   ├── TrailRefusedError       its routing trail is malformed
│   │   ├── CompressedValueError    a compressed value can't be read
│   │   │   └── DecompressionLimitError  it would be larger than values may be
│   │   ├── CompactHeadersError     the header that should hold all others does not
│   │   ├── ExpiryHeaderError       the header that says when it expires does not say it
│   │   ├── HeaderLimitError        it has more headers, or larger ones, than are allowed
│   │   ├── RecordExpiredError      it came after its time
│   │   ├── CloudEventRefusedError  it should be a CloudEvent, and is none
│   │   ├── SliceError              it can't be sliced, or is no slice of its message
│   │   │   └── SlicesIncompleteError  slices of a message were given up: some never came
│   │   ├── ClaimError              a claim is malformed, or stands for something else than was checked in
│   │   │   └── ClaimMissingError   there is nothing under a claim
│   │   ├── UnknownKeyIdError       it names a key that the keyring does not have
│   │   ├── SignatureRefusedError   its signature is missing, or not that of this record
│   │   ├── CiphertextRefusedError  what was to be decrypted is malformed, or was changed
│   │   ├── TokenRefusedError       its token is missing, malformed, expired, or not for us
│   │   ├── AccessDeniedError       the policy denies it
│   │   └── SchemaRefusedError      its value has no schema that can be read with
│   └── ProcessorError          user code raised: names node and record, the cause is chained
├── StateHandleError            a stateful processor asked its handle for what it can't have there
├── OutputFrameError            a stateful processor handed out something else than frames of output rows
├── KafkaSinkError              a batch can't be written to Kafka
│   ├── KafkaRefusedError       Kafka refuses
│   ├── KafkaTimeoutError       Kafka does not answer in time
│   ├── TransactionFencedError  another attempt has the transaction
│   ├── TransactionAbortedError  Kafka does not take a record of it
│   ├── InputCutOffError        the rows of a task stopped before their end
│   ├── MarkerTopicError        the topic for markers can't hold them
│   ├── SinkAheadError          a later batch was written than the checkpoint knows
│   └── BatchChangedError       a batch that was written in part is not the same now
├── HarnessError                what tests and demos run beside Spark can't be had
│   ├── JavaNotFoundError
│   ├── JarsUnavailableError    the Java registry did not hand out a set of jars
│   ├── JarChecksumError        a jar is not the one whose checksum is recorded
│   ├── KafkaBrokerError        the broker did not start, or refused a command
│   ├── InjectedFaultError      a fault of a fault plan struck
│   └── QueryHungError          a query under faults did not end in time
└── DriverError                 the test driver can't do what it was asked
    ├── DriverClosedError
    ├── DriverFailedError       what it was running had failed before
    ├── NoRecordError           an output topic has nothing to read
    │   ├── UninitializedTopicError  nothing was ever written to it
    │   └── EmptyTopicError     all was read already
    ├── NullKeyInMapError       records without a key were to be read as a map
    └── IncompleteChangelogError  a store was to be restored from less than its whole changelog

Errors that only the tools raise, and that name options of the command line, are in `upgrade_tools.errors`.

data, connect, state, run, new_state, directory, data_source, harness, middleware, header_policies, security,
compression, large_messages, schema_registry, kafka_sink and platform declare them by subject, as `root` says.
`readable` has times and places in words.
Imports nothing of ours; everything imports from here. Start at `root`.

Programmer mistakes (a negative count, a wrong argument type) raise ValueError or TypeError instead. Messages say what
is wrong, where it is, and what the operator can do; the same facts are fields of the exception.
"""

from statestore.errors.compression import CompressedValueError, DecompressionLimitError
from statestore.errors.connect import (
    ConfigException,
    ConnectException,
    DataException,
    NullValueException,
    NumberFormatException,
    SchemaBuilderException,
    SerializationException,
)
from statestore.errors.data import (
    ChecksumError,
    DeserializationError,
    FormatError,
    HeadersFrozenError,
    LossyHeadersError,
    NegativeLengthError,
    RecordError,
    RecordSentError,
    SerdeError,
    SerializationError,
    TruncatedError,
    UnknownHeaderError,
    VarintError,
)
from statestore.errors.data_source import (
    ChangesUnavailableError,
    DataFrameReusedError,
    DataSourceOptionError,
    ShardOverlapError,
    StateRowError,
)
from statestore.errors.directory import (
    DirectoryDamagedError,
    DirectoryInUseError,
    DirectoryNotAccessibleError,
    StateDirectoryError,
)
from statestore.errors.harness import (
    DriverClosedError,
    DriverError,
    DriverFailedError,
    EmptyTopicError,
    HarnessError,
    IncompleteChangelogError,
    InjectedFaultError,
    JarChecksumError,
    JarsUnavailableError,
    JavaNotFoundError,
    KafkaBrokerError,
    NoRecordError,
    NullKeyInMapError,
    QueryHungError,
    UninitializedTopicError,
)
from statestore.errors.header_policies import (
    CloudEventRefusedError,
    CompactHeadersError,
    ExpiryHeaderError,
    HeaderLimitError,
    RecordExpiredError,
)
from statestore.errors.kafka_sink import (
    BatchChangedError,
    InputCutOffError,
    KafkaRefusedError,
    KafkaSinkError,
    KafkaTimeoutError,
    MarkerTopicError,
    SinkAheadError,
    TransactionAbortedError,
    TransactionFencedError,
)
from statestore.errors.large_messages import ClaimError, ClaimMissingError, SliceError, SlicesIncompleteError
from statestore.errors.middleware import (
    ChainIncompleteError,
    ChainOrderError,
    ExtraMissingError,
    HeaderRangeError,
    MiddlewareError,
    RecordRefusedError,
    ServiceUnavailableError,
)
from statestore.errors.new_state import (
    KeyPlacementError,
    NewStateError,
    StateCheckError,
    StatePointersError,
    TargetNotEmptyError,
    TooManyShardsError,
    UnknownRecordKeyError,
)
from statestore.errors.platform import ConnectServerError, OperatingSystemError, SparkVersionError
from statestore.errors.root import StateStoreError
from statestore.errors.run import (
    AggregatesError,
    BatchNotEvaluatedError,
    EntryPointChangedError,
    FutureTimestampError,
    InputError,
    InputHeadersError,
    InputSchemaError,
    InvalidTimestampError,
    ModuleNotOnWorkersError,
    NotPicklableError,
    NullKeyError,
    OutputFrameError,
    ProcessorError,
    ProcessorMetadataError,
    RecordColumnsError,
    ShardCountChangedError,
    StateHandleError,
    StatePartitionsError,
    SuppressionBufferFullError,
    TopologyChangedError,
    TopologyError,
    UnknownTopicError,
)
from statestore.errors.schema_registry import (
    IncompatibleSchemaError,
    RegistryUnavailableError,
    SchemaIdError,
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRejectedError,
    UnknownContentTypeError,
)
from statestore.errors.security import (
    AccessDeniedError,
    CiphertextRefusedError,
    KeyUnusableError,
    SignatureRefusedError,
    TokenRefusedError,
    UnknownKeyIdError,
)
from statestore.errors.state import (
    AttemptOutdatedError,
    CheckpointAbandonedError,
    CheckpointBehindError,
    CheckpointLocationError,
    CommitPointerError,
    DurableFileCorruptedError,
    DurableFileMissingError,
    LocalDirectoryError,
    LocalDiskFullError,
    LocalStateCorruptedError,
    LocalStateLockedError,
    LocationBusyError,
    LocationError,
    LocationInUseError,
    LocationMismatchError,
    LocationNotWritableError,
    LocationSharedError,
    RecoveryError,
    RunFencedError,
    SinkRemembersError,
    SnapshotFormatError,
    SnapshotOverdueError,
    SpilledDeltaCorruptedError,
    StateUnfinishedError,
    StoreClosedError,
    StoreError,
    StoreFormatError,
    UnknownColumnFamilyError,
    UnknownEntryError,
    UnreadableCommitError,
    UnsafeNameError,
    VersionCollectedError,
)
from statestore.errors.trail import TrailRefusedError

__all__ = [
    "AccessDeniedError",
    "AggregatesError",
    "AttemptOutdatedError",
    "BatchChangedError",
    "BatchNotEvaluatedError",
    "ChainIncompleteError",
    "ChainOrderError",
    "ChangesUnavailableError",
    "CheckpointAbandonedError",
    "CheckpointBehindError",
    "CheckpointLocationError",
    "ChecksumError",
    "CiphertextRefusedError",
    "ClaimError",
    "ClaimMissingError",
    "CloudEventRefusedError",
    "CommitPointerError",
    "CompactHeadersError",
    "CompressedValueError",
    "ConfigException",
    "ConnectException",
    "ConnectServerError",
    "DataException",
    "DataFrameReusedError",
    "DataSourceOptionError",
    "DecompressionLimitError",
    "DeserializationError",
    "DirectoryDamagedError",
    "DirectoryInUseError",
    "DirectoryNotAccessibleError",
    "DriverClosedError",
    "DriverError",
    "DriverFailedError",
    "DurableFileCorruptedError",
    "DurableFileMissingError",
    "EmptyTopicError",
    "EntryPointChangedError",
    "ExpiryHeaderError",
    "ExtraMissingError",
    "FormatError",
    "FutureTimestampError",
    "HarnessError",
    "HeaderLimitError",
    "HeaderRangeError",
    "HeadersFrozenError",
    "IncompatibleSchemaError",
    "IncompleteChangelogError",
    "InjectedFaultError",
    "InputCutOffError",
    "InputError",
    "InputHeadersError",
    "InputSchemaError",
    "InvalidTimestampError",
    "JarChecksumError",
    "JarsUnavailableError",
    "JavaNotFoundError",
    "KafkaBrokerError",
    "KafkaRefusedError",
    "KafkaSinkError",
    "KafkaTimeoutError",
    "KeyPlacementError",
    "KeyUnusableError",
    "LocalDirectoryError",
    "LocalDiskFullError",
    "LocalStateCorruptedError",
    "LocalStateLockedError",
    "LocationBusyError",
    "LocationError",
    "LocationInUseError",
    "LocationMismatchError",
    "LocationNotWritableError",
    "LocationSharedError",
    "LossyHeadersError",
    "MarkerTopicError",
    "MiddlewareError",
    "ModuleNotOnWorkersError",
    "NegativeLengthError",
    "NewStateError",
    "NoRecordError",
    "NotPicklableError",
    "NullKeyError",
    "NullKeyInMapError",
    "NullValueException",
    "NumberFormatException",
    "OperatingSystemError",
    "OutputFrameError",
    "ProcessorError",
    "ProcessorMetadataError",
    "QueryHungError",
    "RecordColumnsError",
    "RecordError",
    "RecordExpiredError",
    "RecordRefusedError",
    "RecordSentError",
    "RecoveryError",
    "RegistryUnavailableError",
    "RunFencedError",
    "SchemaBuilderException",
    "SchemaIdError",
    "SchemaNotFoundError",
    "SchemaRefusedError",
    "SchemaRejectedError",
    "SerdeError",
    "SerializationError",
    "SerializationException",
    "ServiceUnavailableError",
    "ShardCountChangedError",
    "ShardOverlapError",
    "SignatureRefusedError",
    "SinkAheadError",
    "SinkRemembersError",
    "SliceError",
    "SlicesIncompleteError",
    "SnapshotFormatError",
    "SnapshotOverdueError",
    "SparkVersionError",
    "SpilledDeltaCorruptedError",
    "StateCheckError",
    "StateDirectoryError",
    "StateHandleError",
    "StatePartitionsError",
    "StatePointersError",
    "StateRowError",
    "StateStoreError",
    "StateUnfinishedError",
    "StoreClosedError",
    "StoreError",
    "StoreFormatError",
    "SuppressionBufferFullError",
    "TargetNotEmptyError",
    "TokenRefusedError",
    "TooManyShardsError",
    "TopologyChangedError",
    "TopologyError",
    "TrailRefusedError",
    "TransactionAbortedError",
    "TransactionFencedError",
    "TruncatedError",
    "UninitializedTopicError",
    "UnknownColumnFamilyError",
    "UnknownContentTypeError",
    "UnknownEntryError",
    "UnknownHeaderError",
    "UnknownKeyIdError",
    "UnknownRecordKeyError",
    "UnknownTopicError",
    "UnreadableCommitError",
    "UnsafeNameError",
    "VarintError",
    "VersionCollectedError",
]
