"""Middleware over headers: interceptors that user code need not know of, chains of them, and what is done on failure.

header_limits, header_ids, compact_headers, expiry, compaction, trail, chargeback, slicing/, claim_check
                applications that need no library; marked_columns, clock, properties: what some of them share
tracing/, compression, schema_registry/, polyglot, cloud_events
                those with an extra; extras: how a missing one is said; avro, content_type: what some of them share
signing, encryption, auth, cedar
                those with secrets; keys, key_ids, key_source: what they have them from; canonical, ciphertext,
                serde_cipher, signature_frame: bytes that are signed and encrypted; seen_signatures: which ones
                came already; changing_headers: what is not signed, as it changes on the way

Applications are public modules: nothing is imported that nobody asked for. A task runs a chain around a topology,
`with_middleware` on a DataFrame, ChainClient around a plain client. How they work is in `interception`, which this
imports.
"""

from statestore.interception.chain import Chain, chain_of
from statestore.interception.dead_letters import DeadLetters
from statestore.interception.failed_record import FailedRecord, FailureStage
from statestore.interception.failures import OnFailure
from statestore.interception.interceptor import (
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
