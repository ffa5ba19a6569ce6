"""The errors that statestore raises on purpose, under one root, StateStoreError: what a caller would handle apart.

A class here may be the base of others, which say one thing each. Those have no public name: what they know is their
message, and fields.

data, state, run, new_state, harness and middleware declare them by subject, as `root` says; the tools have a module of
their own.
`readable` has times and places in words. Imports nothing of ours; everything imports from here. Start at `root`.

Programmer mistakes (a negative count, a wrong argument type) raise ValueError or TypeError instead. Messages say what
is wrong, where it is, and what the operator can do; the same facts are fields of the exception.
"""

from statestore.errors.data import (
    ConfigException,
    ConnectException,
    DataException,
    DeserializationError,
    FormatError,
    HeadersFrozenError,
    LossyHeadersError,
    RecordError,
    RecordSentError,
    SerializationError,
    UnknownHeaderError,
)
from statestore.errors.harness import DriverError, HarnessError, NoRecordError
from statestore.errors.middleware import (
    AccessDeniedError,
    MiddlewareError,
    RecordRefusedError,
    ServiceUnavailableError,
    SignatureRefusedError,
    TokenRefusedError,
)
from statestore.errors.new_state import (
    ChangesUnavailableError,
    DataSourceOptionError,
    NewStateError,
    StateDirectoryError,
    TargetNotEmptyError,
)
from statestore.errors.root import StateStoreError
from statestore.errors.run import (
    BatchNotEvaluatedError,
    InputError,
    InputSchemaError,
    KafkaSinkError,
    PlatformError,
    ProcessorError,
    ShardCountChangedError,
    StatePartitionsError,
    SuppressionBufferFullError,
    TopologyChangedError,
    TopologyError,
)
from statestore.errors.state import (
    CheckpointBehindError,
    LocalDirectoryError,
    LocationBusyError,
    LocationError,
    LocationInUseError,
    RecoveryError,
    RunFencedError,
    StoreError,
    StoreFormatError,
    VersionCollectedError,
)

__all__ = [
    "AccessDeniedError",
    "BatchNotEvaluatedError",
    "ChangesUnavailableError",
    "CheckpointBehindError",
    "ConfigException",
    "ConnectException",
    "DataException",
    "DataSourceOptionError",
    "DeserializationError",
    "DriverError",
    "FormatError",
    "HarnessError",
    "HeadersFrozenError",
    "InputError",
    "InputSchemaError",
    "KafkaSinkError",
    "LocalDirectoryError",
    "LocationBusyError",
    "LocationError",
    "LocationInUseError",
    "LossyHeadersError",
    "MiddlewareError",
    "NewStateError",
    "NoRecordError",
    "PlatformError",
    "ProcessorError",
    "RecordError",
    "RecordRefusedError",
    "RecordSentError",
    "RecoveryError",
    "RunFencedError",
    "SerializationError",
    "ServiceUnavailableError",
    "ShardCountChangedError",
    "SignatureRefusedError",
    "StateDirectoryError",
    "StatePartitionsError",
    "StateStoreError",
    "StoreError",
    "StoreFormatError",
    "SuppressionBufferFullError",
    "TargetNotEmptyError",
    "TokenRefusedError",
    "TopologyChangedError",
    "TopologyError",
    "UnknownHeaderError",
    "VersionCollectedError",
]
