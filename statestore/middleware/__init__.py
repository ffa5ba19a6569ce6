"""Middleware over headers: applications that do their work without user code, as interceptors in chains.

security        who may, and who did: signing, encryption, auth, cedar, and the keys that they have
size            what a record weighs: compression, slicing, claim_check, header_ids, compact_headers, header_limits
schemas         what it means: schema_registry, polyglot, cloud_events
lineage         where it has been: tracing, trail, chargeback
lifetime        until when it counts: expiry, compaction

application     what the applications share

Applications are public modules, which users import one by one. A task runs a chain around a topology,
`with_middleware` on a DataFrame, ChainClient around a plain client. How they work is in `interception`, which this
imports.
"""

from statestore.interception.chain import Chain, chain_of
from statestore.interception.failures import DeadLetters, FailedRecord, FailureHandling
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, Interceptor
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.stores.builder import PartStore

__all__ = [
    "Chain",
    "ChangelogRecord",
    "DeadLetters",
    "EmittedRecord",
    "FailedRecord",
    "FailureHandling",
    "IngestedRecord",
    "Interceptor",
    "PartStore",
    "chain_of",
]
