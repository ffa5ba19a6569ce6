"""Signatures among other interceptors: every stack that is allowed reads what it has written, and nothing else.

What comes out is held against the same stack without a signature: to sign is to change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import get_current_span

from statestore.errors import SignatureRefusedError
from statestore.errors.middleware import ChainOrderError
from statestore.kip82.id_headers import HeaderIds
from statestore.middleware import Chain, EmittedRecord, Interceptor
from statestore.middleware.lifetime.expiry import ExpiryHeader
from statestore.middleware.lineage.chargeback import Chargeback
from statestore.middleware.lineage.tracing import TRACEPARENT, Tracing
from statestore.middleware.lineage.trail import PaperTrail
from statestore.middleware.schemas.cloud_events import CloudEvents
from statestore.middleware.schemas.schema_registry import SchemaInterceptor, plain_avro_serde
from statestore.middleware.security.auth import TOKEN_HEADER, Authentication
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.encryption import Encryption, HeaderEncryption
from statestore.middleware.security.signing import SIGNATURE_HEADER, Signing
from statestore.middleware.size.claim_check import ClaimCheck
from statestore.middleware.size.compact_headers import CompactHeaders
from statestore.middleware.size.compression import Compression
from statestore.middleware.size.header_limits import HeaderLimits
from statestore.middleware.size.slicing import Slicing
from tests.support.avro_schemas import confluent
from tests.support.parties import Party
from tests.support.passed_records import contents, produced
from tests.support.security_keys import AFTER, NOW_MS, SIGNING_RINGS, TOKEN_RING, token
from tests.support.traced import KeptSpans

RING, THEIR_RING = SIGNING_RINGS["hmac"][0], SIGNING_RINGS["ed25519"][0]
AVRO: Final = plain_avro_serde('"string"')
TRACE: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HEADERS: Final[list[tuple[str, bytes | None]]] = [
    ("tenant", b"eu"),
    ("iban", b"DE00"),
    (TRACEPARENT, TRACE),
    ("tenant", None),
    ("empty", b""),
    ("tenant", b"us"),
]


class OwnTrace(TextMapPropagator):
    """Writes traces into a header that W3C does not know."""

    fields = {"x-own-trace"}  # noqa: RUF012  # a property in the base class

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        return Context() if context is None else context

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        carrier["x-own-trace"] = f"{get_current_span(context).get_span_context().span_id:x}"


def kinds(home: Path) -> dict[str, Callable[[], Interceptor]]:
    """What may stand around a signature, in the ways in which it does something else with records."""
    registry = confluent()
    return {
        "authentication": lambda: Authentication(TOKEN_RING, algorithms=["HS256"], token=token()),
        "authorization": lambda: Authorization(lambda request: True, authenticated=False),
        "chargeback": Chargeback,
        "claims": lambda: ClaimCheck(home, threshold_bytes=100),
        "lazy claims": lambda: ClaimCheck(home, threshold_bytes=100, lazy=True),
        "compact": lambda: CompactHeaders(HeaderIds({"tenant": 1, "iban": 2})),
        "compression": lambda: Compression("gzip"),
        "encryption": lambda: Encryption(AFTER),
        "encryption of others": lambda: Encryption(AFTER, decrypt=False),
        "encryption of a header": lambda: HeaderEncryption(["iban"], AFTER),
        "encryption of a header for good": lambda: HeaderEncryption(["iban"], AFTER, open=False),
        "events": lambda: CloudEvents("/shop", "sold"),
        "expiry": lambda: ExpiryHeader(2 * NOW_MS),
        "limits": HeaderLimits,
        "our trace": lambda: Tracing(KeptSpans(), propagator=OwnTrace()),
        "schema": lambda: SchemaInterceptor(registry, {"orders": '"string"'}),
        "slicing": lambda: Slicing(1000, persistent=False),
        "their signature": lambda: Signing(THEIR_RING, header="their-signature"),
        "their kept signature": lambda: Signing(THEIR_RING, header="their-signature", keep=True),
        "their signature for others": lambda: Signing(THEIR_RING, header="their-signature", verify=False),
        "trace": lambda: Tracing(KeptSpans()),
        "trail": lambda: PaperTrail("us"),
    }


def records() -> list[EmittedRecord]:
    long, short = AVRO.serialize("words again and again, " * 40), AVRO.serialize("short")
    return [produced(b"k%d" % number, value, HEADERS) for number, value in enumerate((long, short, None, b""))]


UNSIGNED: Final = {TRACEPARENT, "tracestate", "baggage", "trace-links", "paper-trail", SIGNATURE_HEADER}
"""What the page says that is not signed."""
VOLATILE: Final = {TRACEPARENT, "tracestate", "x-own-trace", "their-signature"}
"""What differs each time."""
FOR_GOOD: Final = {"encryption of others", "encryption of a header for good"}
"""After these what is read is ciphertext."""


def seen_of(stack: list[Interceptor], *, in_columns: bool) -> tuple[list[Any], list[Any]]:
    """What a party with the stack reads of what one with the same stack has sent, and why it refuses records."""
    reader = Party(stack, NOW_MS)
    read = reader.read(Party(stack, NOW_MS).send(records(), in_columns=in_columns), in_columns=in_columns)
    made = [
        (key, value, [header for header in headers if header[0] not in VOLATILE])
        for key, value, headers in contents(read)
    ]
    return sorted(made), reader.refused


@pytest.mark.parametrize(("others", "in_columns"), [(1, True), (2, False)])
def test_every_stack_that_is_allowed_reads_what_it_has_written(tmp_path: Path, others: int, in_columns: bool) -> None:
    made, allowed = kinds(tmp_path), set[str]()
    for names in permutations(made, others):
        stack = [made[name]() for name in names]
        if not is_allowed(stack):
            continue
        without, refused_without = seen_of(stack, in_columns=in_columns)
        assert without, names
        for place in range(others + 1):
            signed = [*stack[:place], Signing(RING), *stack[place:]]
            if not is_allowed(signed):
                continue
            with_signature, refused = seen_of(signed, in_columns=in_columns)
            if FOR_GOOD.isdisjoint(names):
                assert with_signature == without, (names, place)
            else:
                assert [row[0] for row in with_signature] == [row[0] for row in without], (names, place)
            assert list(map(type, refused)) == list(map(type, refused_without)), (names, place)
            allowed.update(names)
    assert allowed == made.keys(), "each has a place somewhere"


def is_allowed(stack: list[Interceptor]) -> bool:
    try:
        Chain(stack)
    except (ChainOrderError, ValueError):
        return False
    return True


Pairs = list[tuple[str, bytes | None]]


def changed_headers(headers: Pairs) -> Iterator[Pairs]:
    """All ways to drop one, make it null, empty or another one, give it another name, move it, or have it twice."""
    for place, (name, value) in enumerate(headers):
        before, after = headers[:place], headers[place + 1 :]
        yield before + after
        for other in (None, b"", b"\x01" + (value or b""), (value or b"")[:-1]):
            yield [*before, (name, other), *after]
        yield [*before, (name + "x", value), *after]
        others = before + after
        for place_of_copy in range(len(headers)):
            yield [*others[:place_of_copy], (name, value), *others[place_of_copy:]]
            for copied in (value, None):
                yield [*headers[:place_of_copy], (name, copied), *headers[place_of_copy:]]
        yield [*headers, ("new", b"1")]


def test_a_record_with_other_headers_is_refused_unless_the_page_names_them() -> None:
    stack = [
        Tracing(KeptSpans()),
        PaperTrail("us"),
        SchemaInterceptor(confluent(), {"orders": '"string"'}),
        ExpiryHeader(2 * NOW_MS),
        Compression("gzip"),
        Encryption(AFTER),
        Authentication(TOKEN_RING, algorithms=["HS256"], token=token()),
        Signing(RING),
    ]
    (sent,) = Party(stack, NOW_MS).send([records()[0]], in_columns=False)
    headers = [(header.key, header.value) for header in sent.headers]
    steering = {"COMPRESSION", "__value_schema_id", "expires-at", "statestore-encryption", TOKEN_HEADER}
    assert steering | {TRACEPARENT, "paper-trail"} <= {name for name, _ in headers}
    verified = 0

    def signed(pairs: Pairs) -> tuple[Pairs, bytes | None]:
        frames = [value for name, value in pairs if name == SIGNATURE_HEADER]
        return [pair for pair in pairs if pair[0] not in UNSIGNED], frames[-1] if frames else None

    for pairs in changed_headers(headers):
        reader = Party(stack, NOW_MS)
        reader.read([sent.copy(headers=pairs)], in_columns=False)
        is_verified = not any(isinstance(error, SignatureRefusedError) for error in reader.refused)
        assert is_verified is (signed(pairs) == signed(headers)), pairs
        verified += is_verified
    assert verified > len(headers), "those that change on the way may, and nothing moves where it is put in its place"


def test_interceptors_say_what_headers_they_go_by(tmp_path: Path) -> None:
    """A header steers if, with another one in its place, something else than that header gets in, or nothing does."""
    made = {name: make() for name, make in kinds(tmp_path).items()}
    made["encryption"] = Encryption(AFTER, required=False)
    made["authentication"] = Authentication(TOKEN_RING, algorithms=["HS256"], token=token(), required=False)
    found = set[str]()
    for name, interceptor in made.items():
        sent = Party([interceptor], NOW_MS).send(records(), in_columns=False)

        def let_in(records: list[EmittedRecord], header: str, interceptor: Interceptor = interceptor) -> Any:
            reader = Party([interceptor], NOW_MS)
            read = contents(reader.read(records, in_columns=False))
            left = [
                (key, value, [pair for pair in pairs if pair[0] not in {header, *VOLATILE}])
                for key, value, pairs in read
            ]
            return None if reader.refused else left

        for place, record in enumerate(sent):
            for number, header in enumerate(record.headers):
                before, after = list(record.headers)[:number], list(record.headers)[number + 1 :]
                for instead in ([], [(header.key, None)], [(header.key, bytes(8))]):
                    changed = record.copy(headers=[*before, *instead, *after])
                    read = let_in([*sent[:place], changed, *sent[place + 1 :]], header.key)
                    if read is not None and read != let_in(sent, header.key):
                        assert header.key in {*interceptor.goes_by, *interceptor.marks}, name
                        found.add(header.key)
    assert found >= {"COMPRESSION", "CLAIM_CHECK", "CHUNK", "_h", "expires-at", "statestore-encryption", TOKEN_HEADER}
