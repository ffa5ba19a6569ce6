"""All orders of interceptors, against an outsider who has every key, but no token of somebody who may.

An outsider puts a header on a record plainly, or packs, signs, encrypts, compresses and slices it, in any order. What
user code sees in the end is held against what the pages promise; how chains are refused is not asked.
"""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import combinations, permutations
from typing import Any, Final

import pytest

import statestore.middleware
from statestore import ConsumerRecord, ProducerRecord, Topology
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors.middleware import ChainIncompleteError, ChainOrderError
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.headers.topic_columns import source_batch, source_records
from statestore.interception.failures import raise_refusal
from statestore.interception.passage import EmitPassage, IngestPassage, record_of, source_of
from statestore.interception.task_passages import Ingest
from statestore.middleware import Chain, EmittedRecord, IngestedRecord, Interceptor
from statestore.middleware.application import TRAIL_HEADER
from statestore.middleware.lifetime.expiry import ExpiryHeader
from statestore.middleware.lineage.chargeback import USAGE_STORE, Chargeback, read_usage
from statestore.middleware.lineage.tracing import TRACEPARENT, Tracing
from statestore.middleware.lineage.trail import Entry, PaperTrail, Trail, read_trail
from statestore.middleware.schemas.cloud_events import CE_PREFIX, STRUCTURED, CloudEvents
from statestore.middleware.schemas.content_type import CONTENT_TYPE
from statestore.middleware.schemas.schema_registry import SchemaInterceptor, plain_avro_serde
from statestore.middleware.schemas.schema_registry.ids import VALUE_SCHEMA_ID
from statestore.middleware.security.auth import CLAIMS_HEADER, TOKEN_HEADER, Authentication, claims_of
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.encryption import Encryption, HeaderEncryption
from statestore.middleware.security.signing import Signing
from statestore.middleware.size.claim_check import ClaimCheck
from statestore.middleware.size.compact_headers import CompactHeaders
from statestore.middleware.size.compression import Compression
from statestore.middleware.size.header_ids import HeaderRegistry
from statestore.middleware.size.header_limits import HeaderLimits
from statestore.middleware.size.slicing import Slicing
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.punctuation import Punctuations
from statestore.processor.task_stores import StoreBacking, build_stores
from tests.support.avro_schemas import confluent
from tests.support.security_keys import AFTER, NOW_MS, SIGNING_RINGS, TOKEN_RING, token
from tests.support.traced import KeptSpans

TOPIC: Final = "orders"
VALUE: Final = plain_avro_serde('"string"').serialize("".join(sha256(b"%d" % each).hexdigest() for each in range(20)))
TRACE: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MALLORY, ADMIN = (token(sub=who).encode() for who in ("mallory", "admin"))
FORBIDDEN: Final = ("forbidden", f"{CE_PREFIX}forbidden")
SECRET: Final = ("iban", f"{CE_PREFIX}iban")

# What an outsider wants to have in, and with whose token; and which interceptors promise something about it.
FORGED: Final[dict[str, list[tuple[str, bytes]]]] = {
    "claims": [(CLAIMS_HEADER, b'{"sub":"admin"}')],
    "claims beside a token": [(CLAIMS_HEADER, b'{"sub":"admin"}'), (TOKEN_HEADER, MALLORY)],
    **{f"{name} by who may": [(name, b"yes"), (TOKEN_HEADER, ADMIN)] for name in FORBIDDEN},
    **{f"{name} in clear": [(name, b"DE00")] for name in SECRET},
    "expired": [(EXPIRY_HEADER, expiry_value(NOW_MS - 1))],
    "a trail": [(TRAIL_HEADER, Trail((Entry("mallory", None, TOPIC, 1),)).to_bytes())],
    "another schema": [(VALUE_SCHEMA_ID, b"\0" * 17)],
}
TARGETS: Final = {
    "token": ["claims", "claims beside a token"],
    "authorization": ["claims", "claims beside a token", *(name for name in FORGED if "by who may" in name)],
    "header-encryption": [name for name in FORGED if "in clear" in name],
    "expiry": ["expired"],
    "trail": ["a trail"],
    "chargeback": ["a trail"],
    "schema": ["another schema"],
}


PACKING: Final = (
    *("header-ids", "cloudevents", "compression", "encryption", "signing", "slicing", "claim-check", "schema"),
)
BRINGERS: Final = PACKING[:2]


FIRST: Final = ("authorization", "token")


def may(request: Any) -> bool:
    return request.principal == "admin" and not any(name in request.headers for name in FORBIDDEN)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Interceptor]:
    """One interceptor of each kind."""
    registry = HeaderRegistry().with_range("us", 1, 9).with_ids("us", {CLAIMS_HEADER: 1, "tenant": 2})
    ring = SIGNING_RINGS["hmac"][0]
    made: list[Interceptor] = [
        Authentication(TOKEN_RING, algorithms=["HS256"], required=False),
        Authorization(may),
        CompactHeaders(registry),
        CloudEvents("/shop", "sold", required=False, carried=["forbidden", "iban"]),
        Compression("gzip"),
        Encryption(AFTER, required=False),
        HeaderEncryption(SECRET, AFTER),
        Signing(ring),
        Slicing(800, persistent=False),
        ClaimCheck(tmp_path_factory.mktemp("claims"), threshold_bytes=200),
        ExpiryHeader(1000),
        PaperTrail("us"),
        Chargeback(),
        Tracing(KeptSpans()),
        SchemaInterceptor(confluent(), {TOPIC: '"string"'}),
        HeaderLimits(),
    ]
    return {one.kind: one for one in made}


class Party:
    """Who has interceptors, in whatever order, with stores and a clock."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        context = TaskRecordContext(system_time_ms=NOW_MS)
        around = Topology().with_interceptors(interceptors)
        self.stores = build_stores(around, context, lambda name: StoreBacking(MemoryByteStore(name)))
        nodes = around.interceptors.values()
        self._made = TaskInterceptors(nodes, 0, context, self.stores, Punctuations({}), raise_refusal)
        self._made.init()

    def send(self, *records: EmittedRecord) -> list[EmittedRecord]:
        passage = EmitPassage(self._made.interceptors, _leave_out)
        return [made for record in records for made in passage.pass_record(record)]

    def read(self, records: Sequence[EmittedRecord], *, in_columns: bool = False) -> list[IngestedRecord]:
        """What is left of records for user code."""
        come = [
            ConsumerRecord(
                TOPIC, 0, offset, key=each.key, value=each.value, timestamp_ms=NOW_MS, headers=list(each.headers)
            )
            for offset, each in enumerate(records)
        ]
        if in_columns:
            parts = Ingest(self._made.interceptors, _leave_out).batches(source_batch([source_of(one) for one in come]))
            return [record_of(source) for part in parts for source in source_records(part)]
        passage = IngestPassage(self._made.interceptors, _leave_out)
        return [made for record in come for made in passage.pass_record(record)]

    def charged(self) -> set[str]:
        """Who was charged for what was read."""
        self._made.finish_batch()
        with self.stores[USAGE_STORE].all() as entries:
            return set(read_usage(entries))


def _leave_out(*refused: Any) -> None:
    """Take what is refused."""


def _send_whole_event(record: EmittedRecord) -> list[EmittedRecord]:
    """The record as an event in structured mode, with all that can stand there."""
    attributes = {name: value or b"" for name, value in record.headers if name.startswith(CE_PREFIX)}
    event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}
    event |= {name[len(CE_PREFIX) :]: value.decode() for name, value in attributes.items()}
    event["data_base64"] = base64.b64encode(record.value or b"").decode()
    headers = [header for header in record.headers if header.key not in (*attributes, CONTENT_TYPE)]
    return [record.copy(value=json.dumps(event).encode(), headers=[*headers, (CONTENT_TYPE, STRUCTURED.encode())])]


def honest(headers: Sequence[tuple[str, bytes]]) -> EmittedRecord:
    return ProducerRecord(TOPIC, key=b"k", value=VALUE, timestamp_ms=NOW_MS, headers=list(headers))


Step = Callable[[EmittedRecord], Sequence[EmittedRecord]]


def steps_of(kinds: dict[str, Interceptor], order: Sequence[str]) -> list[Step]:
    """What an outsider can do to a record with interceptors like these; not what would hide or replace the forged."""
    steps: list[Step] = [Party([kinds[kind]]).send for kind in order if kind in PACKING]
    return [*steps, _send_whole_event] if "cloudevents" in order else steps


def attacks(steps: Sequence[Step], forged: Sequence[tuple[str, bytes]]) -> Iterator[list[EmittedRecord]]:
    """Yield what an outsider may write: the steps in each order, or some of them, with the forged put in anywhere."""
    for count in range(min(len(steps), 2) + 1):
        for chosen in permutations(steps, count):
            for place in range(count + 1):
                records = [honest([])]
                for number, step in enumerate((*chosen, None)):
                    if number == place and records:
                        for name, content in forged:
                            records[0].headers.remove(name).add(name, content)
                    if step is not None:
                        records = [made for record in records for made in step(record)]
                if records:
                    yield records


def breaches(order: Sequence[str], forged: str, party: Party | None, got: Sequence[IngestedRecord]) -> list[str]:
    """Which promises do not hold of what came in; `party` is who has read one record, and nothing else."""
    found = []
    for record in got:
        headers = record.headers
        if "token" in order:
            who = {"mallory", None} if "token" in forged else {"admin", None} if "who may" in forged else {None}
            if claims_of(headers).get("sub") not in who:
                found.append("claims that no token has made are there")
        if "authorization" in order and not ("who may" in forged and not any(name in headers for name in FORBIDDEN)):
            found.append("a policy was gone round")
        if "header-encryption" in order and any((name, b"DE00") in list(headers) for name in SECRET):
            found.append("a header that has to be encrypted was not")
        if "expiry" in order and forged == "expired":
            found.append("an expired record was let in")
        if "trail" in order and forged == "a trail" and len(read_trail(headers).entries) != 2:
            found.append("a trail was lost")
        if "schema" in order and VALUE_SCHEMA_ID in headers:
            found.append("what steered the reading of a schema is still there")
    if "chargeback" in order and forged == "a trail" and party is not None and got and party.charged() != {"mallory"}:
        found.append("nobody was charged")
    return found


def failures(kinds: dict[str, Interceptor], order: Sequence[str]) -> set[str]:
    """What becomes of an honest record that both sides have the same chain for, beside what is promised."""
    claims, trail = FORGED["claims"], FORGED["a trail"]
    own = [("tenant", b"eu"), ("iban", b"DE01")]
    record = honest([*own, *claims, *trail, (TOKEN_HEADER, ADMIN), (TRACEPARENT, TRACE)])
    sent = Party([kinds[kind] for kind in order]).send(record)
    found = set()
    for in_columns in (False, True):
        got = Party([kinds[kind] for kind in order]).read(sent, in_columns=in_columns)
        plain = Party([kinds[kind] for kind in order if kind not in FIRST]).read(sent, in_columns=in_columns)
        if len(got) != 1:
            found.add("no record has arrived, or several")
        for headers in (dict(each.headers) for each in got):
            if any(headers.get(name) != content for name, content in own):
                found.add("headers have changed")
            if "tracing" in order and (headers[TRACEPARENT] or b"")[:35] != TRACE[:35]:
                found.add("the trace was lost")
        if any(each.value != VALUE for each in got):
            found.add("the value has changed")
        if "token" in order and any(claims_of(each.headers) != {"sub": "admin"} for each in got):
            found.add("claims are not those of the token")
        if "token" in order and any(CLAIMS_HEADER in each.headers for each in plain):
            found.add("claims have left")
        whom = [[entry.by_whom for entry in read_trail(each.headers).entries] for each in got]
        if "trail" in order and any(names != ["mallory", "us", "us"] for names in whom):
            found.add("a trail was lost")
    return found


class Outsider:
    """Tries all that there is to try against chains, in whatever order."""

    def __init__(self, kinds: dict[str, Interceptor]) -> None:
        self._kinds = kinds
        self._attacks: dict[tuple[frozenset[str], str], list[list[EmittedRecord]]] = {}

    def breaks(self, order: Sequence[str]) -> set[str]:
        """Which promises do not hold with this order, if nobody checks that."""
        found: set[str] = set()
        for name in {name: None for kind in order for name in TARGETS.get(kind, ())}:
            tried = self._attacks_of(frozenset(order), name)
            party = self._party(order)
            for records in tried:
                if "chargeback" in order:
                    party = self._party(order)
                found.update(breaches(order, name, party, party.read(records)))
            party = self._party(order)
            together = [record for records in tried for record in records]
            found.update(breaches(order, name, None, party.read(together, in_columns=True)))
        return found

    def refusal(self, order: Sequence[str]) -> str:
        """Why a chain of this order can't be made, or can't run; "" if it can."""
        try:
            Chain([self._kinds[kind] for kind in order]).complete()
        except (ChainOrderError, ChainIncompleteError) as error:
            return error.reason
        return ""

    def _party(self, order: Sequence[str]) -> Party:
        return Party([self._kinds[kind] for kind in order])

    def _attacks_of(self, order: frozenset[str], name: str) -> list[list[EmittedRecord]]:
        if (order, name) not in self._attacks:
            self._attacks[order, name] = list(attacks(steps_of(self._kinds, sorted(order)), FORGED[name]))
        return self._attacks[order, name]


@pytest.fixture(scope="module")
def outsider(kinds: dict[str, Interceptor]) -> Outsider:
    return Outsider(kinds)


def test_no_kind_of_interceptor_is_left_out(kinds: dict[str, Interceptor]) -> None:
    for module in pkgutil.walk_packages(statestore.middleware.__path__, "statestore.middleware."):
        importlib.import_module(module.name)
    waiting, found = [Interceptor], set()
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        found |= {one.kind} if one.__module__.startswith("statestore.") else set()
    assert found - {""} == set(kinds)


def test_every_order_of_two_that_breaks_is_refused_and_by_headers_no_other(
    kinds: dict[str, Interceptor], outsider: Outsider
) -> None:
    orders = list(permutations(kinds, 2))
    broken = {order: found for order in orders if (found := outsider.breaks(order) | failures(kinds, order))}
    assert len(broken) > 20, "it knows how to break some"
    assert {order: found for order, found in broken.items() if not outsider.refusal(order)} == {}
    by_headers = [order for order in orders if "goes by" in outsider.refusal(order)]
    assert [order for order in by_headers if order not in broken] == []


def test_no_order_around_tokens_and_a_policy_that_is_allowed_can_be_broken(
    kinds: dict[str, Interceptor], outsider: Outsider
) -> None:
    others = [kind for kind in kinds if kind not in FIRST]
    beside = [*combinations(others, 1), *(pair for pair in combinations(PACKING, 2) if {*pair} & {*BRINGERS})]
    orders = [order for each in beside for order in permutations((*FIRST, *each))]
    allowed = [order for order in orders if not outsider.refusal(order)]
    assert {frozenset(order) for order in allowed} == {frozenset((*FIRST, *each)) for each in beside}
    assert {order: found for order in allowed if (found := outsider.breaks(order))} == {}
