"""Middleware over headers: interceptors that user code need not know of, chains of them, and what is done on failure.

interceptor     what a user writes; ingest_function: a plain function as one
chain           several as one, in an order that works; configuration: chains by name
passage         how records pass one side of a chain, by themselves and in columns
failures        what is done about records that fail; dead_letters: how they are put out
header_limits, header_ids, compact_headers, expiry, compaction, trail, chargeback
                applications without a library of their own
tracing/, signing, encryption, auth, cedar, compression, slicing/, claim_check, schema_registry/, polyglot, cloud_events
                applications that need an extra, each with its own; extras: how a missing one is said
keys            keys by their ids, for all that has secrets

Each application is a public module: nothing is imported that nobody asked for. `Task` in `statestore.processor` runs a
chain around a topology, `statestore.spark.with_middleware` on a DataFrame, `ChainClient` around a plain client. Imports
nothing above the stores. Begin at `interceptor`.
"""

from statestore.middleware.chain import Chain
from statestore.middleware.configuration import chain_of
from statestore.middleware.dead_letters import DeadLetters
from statestore.middleware.failures import FailedRecord, FailureStage, OnFailure
from statestore.middleware.interceptor import (
    EmittedRecord,
    IngestedRecord,
    Interceptor,
    InterceptorContext,
)
from statestore.stores.part_store import PartStore

__all__ = [
    "Chain",
    "DeadLetters",
    "EmittedRecord",
    "FailedRecord",
    "FailureStage",
    "IngestedRecord",
    "Interceptor",
    "InterceptorContext",
    "OnFailure",
    "PartStore",
    "chain_of",
]
