"""Middleware over headers: interceptors that user code need not know of, chains of them, and what is done on failure.

interceptor     what a user writes; ingest_function: a plain function as one
chain           several as one, in an order that works; configuration: chains by name
passage         how records pass one side of a chain, by themselves and in columns
failures        what is done about a failed_record; dead_letters: how it is put out
header_limits, header_ids, compact_headers, expiry, compaction, trail, chargeback, slicing/, claim_check
                applications that need no library; marked_columns, clock, properties: what some of them share
tracing/, compression, schema_registry/, polyglot, cloud_events
                those with an extra; extras: how a missing one is said; avro, content_type: what some of them share
signing, encryption, auth, cedar
                those with secrets; keys, key_ids, key_source: what they have them from; canonical, ciphertext,
                serde_cipher, signature_frame: bytes that are signed and encrypted; seen_signatures: which ones
                came already; changing_headers: what is not signed, as it changes on the way

Applications are public modules: nothing is imported that nobody asked for. A task runs a chain around a topology,
`with_middleware` on a DataFrame, ChainClient around a plain client. Imports stores and below. Start at `interceptor`.
"""

from statestore.middleware.chain import Chain
from statestore.middleware.configuration import chain_of
from statestore.middleware.dead_letters import DeadLetters
from statestore.middleware.failed_record import FailedRecord, FailureStage
from statestore.middleware.failures import OnFailure
from statestore.middleware.interceptor import (
    EmittedRecord,
    IngestedRecord,
    Interceptor,
    InterceptorContext,
)
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.stores.part_store import PartStore

__all__ = [
    "Chain",
    "ChangelogRecord",
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
