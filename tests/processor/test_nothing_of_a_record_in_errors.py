"""What a record holds is in no error, no log line and no dead letter's headers, wherever it fails."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from statestore import ConsumerRecord, Headers, Processor, ProducerRecord, Record, Serdes, Topology
from statestore.connect import COMPAT, STRICT, ConnectIngest, Instant, header_converter
from statestore.connect.schema import Schema, Struct, Type
from statestore.errors import StateStoreError
from statestore.kip82 import text_headers
from statestore.kip82.id_header_bytes import IdForm, decode_id_headers
from statestore.kip82.id_headers import HeaderIds
from statestore.middleware import Chain, DeadLetters, FailureHandling, Interceptor
from statestore.middleware.application import TRAIL_HEADER
from statestore.middleware.lineage.tracing.interceptor import Tracing
from statestore.middleware.lineage.trail import PaperTrail
from statestore.middleware.schemas.cloud_events import CloudEvents
from statestore.middleware.schemas.content_type import CONTENT_TYPE
from statestore.middleware.security.auth import CLAIMS_HEADER, TOKEN_HEADER, Authentication, TokenKey
from statestore.middleware.security.authorization import Authorization
from statestore.middleware.security.encryption import ENCRYPTION_HEADER, Encryption, HeaderEncryption, encrypted_serde
from statestore.middleware.security.keys import AesKey, HmacKey, Keyring
from statestore.middleware.security.signing import SIGNATURE_HEADER, Signing
from statestore.middleware.size.claim_check import CLAIM_CHECK_HEADER, ClaimCheck
from statestore.middleware.size.compact_headers import COMPACT_HEADER, CompactHeaders
from statestore.middleware.size.compression import COMPRESSION_HEADER, Compression
from statestore.middleware.size.header_limits import HeaderLimits
from statestore.middleware.size.slicing.interceptor import Slicing
from statestore.middleware.size.slicing.slice import CHUNK_HEADER
from statestore.testing import TopologyTestDriver

TEXT = "zq7xkv93wjp4"
DIGITS = "7390184625507318"
_WINDOW = 6


def windows(secret: str) -> Iterator[str]:
    """Every part of a secret that would give it away, as itself and as the hex of its bytes."""
    for start in range(len(secret) - _WINDOW + 1):
        part = secret[start : start + _WINDOW]
        yield part
        yield part.encode().hex()


GIVEAWAYS = re.compile("|".join(re.escape(part) for secret in (TEXT, DIGITS) for part in windows(secret)))


def told(error: BaseException) -> Iterator[str]:
    """Everything that anybody may print of an error: its text, those of its causes, its fields."""
    yield str(error)
    yield repr(error)
    yield "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, StateStoreError):
            yield repr(vars(seen))
        seen = seen.__cause__ or seen.__context__


def assert_silent(texts: Iterator[str] | list[str]) -> None:
    for text in texts:
        found = GIVEAWAYS.search(text)
        assert found is None, f"{found and found[0]} in {text}"


def raised_by(call: Callable[[], object]) -> list[BaseException]:
    try:
        call()
    except Exception as error:
        return [error]
    return []


def secret_header(name: str = "h") -> tuple[str, bytes]:
    return (name, TEXT.encode())


class Forwarding(Processor):
    """Forwards what a function makes of a record."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(self.make(record))


def raise_plainly(record: Any) -> Any:
    raise RuntimeError("user code fails, and says nothing of the record")


def chain(make: Callable[[Any], Any] = lambda record: record, *, source: Any = None, sink: Any = None) -> Topology:
    made = Topology().add_source("in", "in", key_serde=Serdes.bytes(), value_serde=source or Serdes.bytes())
    made.add_processor("p", lambda: Forwarding(make), ["in"])
    return made.add_sink("out", "out", ["p"], value_serde=sink)


def hook(name: str, make: Callable[..., Any]) -> Interceptor:
    return type("Hooked", (Interceptor,), {name: lambda self, *taken: make(taken[-1])})()


class Unserializable:
    """Says what it holds."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __repr__(self) -> str:
        return f"holds {self.held!r}"


KEYS = Keyring({"2026": AesKey(bytes(range(32)))}, active="2026")


SERDES = {
    "string": Serdes.string(),
    "int32": Serdes.int32(),
    "int64": Serdes.int64(),
    "double": Serdes.double(),
    "boolean": Serdes.boolean(),
    "json": Serdes.json(),
}
VALUES: dict[str, Any] = {
    "text": TEXT,
    "bytes": TEXT.encode(),
    "number": int(DIGITS) * 10**9,
    "set": {TEXT},
    "list": [TEXT, {TEXT}],
    "object": Unserializable(TEXT),
    "surrogate": TEXT + "\ud800",
}
BYTES = {
    "text": TEXT.encode(),
    "no UTF-8": b"\xff" + TEXT.encode(),
    "cut JSON": json.dumps({TEXT: TEXT}).encode()[:-1],
    "JSON with more": json.dumps({TEXT: DIGITS}).encode() + TEXT.encode(),
    "NaN": b"[NaN, " + DIGITS.encode() + b"]",
}


def assert_it_fails_in_silence(topology: Topology, value: bytes, caplog: Any, **options: Any) -> None:
    """Pipe a record of secrets through a topology that fails, stopping at it and going on, and look at what is said."""
    key, headers = TEXT.encode(), Headers([secret_header(), secret_header("other")])
    letter = "dead_letter"
    going_on = FailureHandling(deserialization=letter, processing=letter, production=letter, dead_letters="dead")
    has_failed = False
    for failures in (None, going_on):
        with TopologyTestDriver(topology, failures=failures, **options) as driver:
            piped = driver.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            for error in raised_by(lambda piped=piped: piped.pipe_input(key, value, headers=headers)):
                has_failed = True
                assert_silent(told(error))
            if failures is None:
                continue
            dead = driver.create_output_topic("dead", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            for letter in dead.read_records_to_list():
                has_failed = True
                assert (letter.key, letter.value) == (key, value)
                said = [header.value for header in letter.headers if header.key.startswith(DeadLetters.PREFIX)]
                assert_silent([(each or b"").decode() for each in said])
    assert has_failed
    assert_silent([record.getMessage() for record in caplog.records])


@pytest.mark.parametrize("serde", [name for name in SERDES if name != "string"])
@pytest.mark.parametrize("value", BYTES)
def test_what_a_source_can_not_read(serde: str, value: str, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        assert_it_fails_in_silence(chain(source=SERDES[serde]), BYTES[value], caplog)
        assert_it_fails_in_silence(chain(source=encrypted_serde(SERDES[serde], KEYS)), BYTES[value], caplog)


def test_text_that_is_no_utf8(caplog: Any) -> None:
    assert_it_fails_in_silence(chain(source=Serdes.string()), BYTES["no UTF-8"], caplog)


WRITABLE = {"string": ("text",), "json": ("text", "number"), "double": ("number",), "by type": ("text", "bytes")}
UNWRITABLE = [
    (serde, value) for serde in (*SERDES, "by type") for value in VALUES if value not in WRITABLE.get(serde, ())
]


@pytest.mark.parametrize(("serde", "value"), UNWRITABLE)
def test_what_a_sink_can_not_write(serde: str, value: str, caplog: Any) -> None:
    made, sink = VALUES[value], SERDES.get(serde)
    with caplog.at_level(logging.DEBUG):
        assert_it_fails_in_silence(chain(lambda record: record.with_value(made), sink=sink), b"v", caplog)
        if sink is not None:
            assert_it_fails_in_silence(
                chain(lambda record: record.with_value(made), sink=encrypted_serde(sink, KEYS)), b"v", caplog
            )


@pytest.mark.parametrize("make", [raise_plainly, lambda record: record.value, lambda record: (record.key, TEXT)])
def test_what_a_processor_fails_on(make: Any, caplog: Any) -> None:
    assert_it_fails_in_silence(chain(make), TEXT.encode(), caplog)


WRONG_RESULTS: dict[str, Callable[[Any], Any]] = {
    "a failure": raise_plainly,
    "a value": lambda record: [record.value],
    "no list": lambda record: record,
    "a record of text": lambda record: [record.copy(value=TEXT)] if hasattr(record, "copy") else [TEXT],
    "a key of text": lambda record: [record.copy(key=TEXT)] if hasattr(record, "copy") else [TEXT],
    "headers": lambda record: [record.headers],
}


@pytest.mark.parametrize("name", ["on_ingest", "on_consume", "on_send", "on_emit"])
@pytest.mark.parametrize("wrong", WRONG_RESULTS)
def test_what_an_interceptor_does_wrong(name: str, wrong: str, caplog: Any) -> None:
    assert_it_fails_in_silence(chain(), TEXT.encode(), caplog, interceptors=[hook(name, WRONG_RESULTS[wrong])])


@pytest.mark.parametrize("make", [lambda record: record.value, lambda record: record.copy(value=TEXT), raise_plainly])
def test_what_a_hook_for_what_comes_in_does_wrong(make: Any, caplog: Any) -> None:
    assert_it_fails_in_silence(chain(), TEXT.encode(), caplog, interceptors=make)


CONTENTS = {
    **BYTES,
    "number": DIGITS.encode() * 4,
    "text in JSON": json.dumps(TEXT).encode(),
    "object": json.dumps({"f": TEXT, TEXT: DIGITS}).encode(),
    "names": json.dumps({"schema": {"type": TEXT, "name": TEXT}, "payload": TEXT}).encode(),
    "wrong payload": json.dumps({"schema": {"type": "int8"}, "payload": TEXT}).encode(),
    "large payload": json.dumps({"schema": {"type": "int8"}, "payload": int(DIGITS)}).encode(),
    "decimal": json.dumps(
        {
            "schema": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": TEXT}},
            "payload": TEXT,
        }
    ).encode(),
    "struct": json.dumps(
        {"schema": {"type": "struct", "fields": [{"field": TEXT, "type": "int32"}]}, "payload": {TEXT: TEXT}}
    ).encode(),
    "double name": f'{{"{TEXT}": 1, "{TEXT}": 2}}'.encode(),
    "map": json.dumps(
        {
            "schema": {"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}},
            "payload": {TEXT: TEXT},
        }
    ).encode(),
}
CONVERTERS: dict[str, dict[str, str]] = {
    "json": {"": "JsonConverter", ".schemas.enable": "false"},
    "json with schemas": {"": "JsonConverter", ".schemas.enable": "true"},
    "compat": {"": "JsonConverter", ".schemas.enable": "true", ".mode": "compat"},
    "text": {"": "StringConverter", ".converter.encoding": "US-ASCII"},
    "simple": {"": "SimpleHeaderConverter"},
    "avro": {"": "AvroConverter"},
    "avro of a schema": {"": "AvroConverter", ".schema.content": '{"type": "array", "items": "string"}'},
}
STEPS = {
    "from value": {"type": "HeaderFrom$Value", "fields": "f", "headers": "f", "operation": "move"},
    "from key": {"type": "HeaderFrom$Key", "fields": "f", "headers": "f", "operation": "copy"},
    "to value": {
        "type": "HeaderTo$Value",
        "fields": "f",
        "headers": "h",
        "operation": "move",
        "duplicates": "list",
    },
}


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize("step", STEPS)
def test_what_connect_can_not_convert(converter: str, step: str, caplog: Any) -> None:
    config = {f"transforms.a.{name}": value for name, value in STEPS[step].items()} | {"transforms": "a"}
    for side in ("key", "value", "header"):
        config |= {f"{side}.converter{name}": value for name, value in CONVERTERS[converter].items()}
    ingest = ConnectIngest(config)
    with caplog.at_level(logging.DEBUG):
        failures = [
            error
            for content in CONTENTS.values()
            for other in CONTENTS.values()
            for error in raised_by(
                lambda content=content, other=other: ingest(
                    ConsumerRecord("in", 0, 1, key=content, value=content, headers=[("h", other), ("h", content)])
                )
            )
        ]
    assert failures
    for error in failures:
        assert_silent(told(error))
    assert_silent([record.getMessage() for record in caplog.records])


STRUCT = Schema.struct({TEXT: Schema.STRING_SCHEMA})
TYPED: list[tuple[Schema | None, Any]] = [
    *((None, value) for value in VALUES.values()),
    (Schema.STRING_SCHEMA, TEXT),
    (Schema.STRING_SCHEMA, DIGITS * 3),
    (Schema.STRING_SCHEMA, f"[{TEXT}, {DIGITS}"),
    (Schema.STRING_SCHEMA, f'{{"{TEXT}": 1, "{TEXT}": 2}}'),
    (Schema.INT64_SCHEMA, int(DIGITS)),
    (Schema.FLOAT64_SCHEMA, float(DIGITS)),
    (Schema.BYTES_SCHEMA, TEXT.encode()),
    (Schema.decimal(2), Decimal(DIGITS)),
    (Schema.TIMESTAMP_SCHEMA, Instant(int(DIGITS))),
    (Schema.array(Schema.STRING_SCHEMA), [TEXT]),
    (Schema.map(Schema.STRING_SCHEMA, Schema.STRING_SCHEMA), {TEXT: DIGITS}),
    (STRUCT, Struct(STRUCT, {TEXT: TEXT})),
]
SCHEMAS = [
    *(Schema(type_) for type_ in Type if type_ not in (Type.ARRAY, Type.MAP, Type.STRUCT)),
    Schema.DATE_SCHEMA,
    Schema.TIME_SCHEMA,
    Schema.TIMESTAMP_SCHEMA,
    Schema.decimal(3),
    Schema.array(Schema.INT8_SCHEMA),
    Schema.map(Schema.STRING_SCHEMA, Schema.INT8_SCHEMA),
    Schema.struct({"f": Schema.INT8_SCHEMA}),
]


@pytest.mark.parametrize("values", [STRICT, COMPAT], ids=["strict", "compat"])
def test_what_conversions_of_typed_values_refuse(values: Any, caplog: Any) -> None:
    names = [name for name in dir(values) if name.startswith("convert_to_")]
    failures = []
    for schema, value in TYPED:
        for name in names:
            more = (2,) if name == "convert_to_decimal" else ()
            failures += raised_by(lambda: getattr(values, name)(schema, value, *more))  # noqa: B023
        if isinstance(value, str):
            failures += raised_by(lambda: values.parse_string(value))  # noqa: B023
            for target in SCHEMAS if values is STRICT else ():
                failures += raised_by(lambda: STRICT.parse_as(target, value))  # noqa: B023
    assert len(failures) > 100
    for error in failures:
        assert_silent(told(error))


@pytest.mark.parametrize("converter", CONVERTERS)
def test_what_converters_can_not_write(converter: str) -> None:
    made = header_converter({f"header.converter{name}": value for name, value in CONVERTERS[converter].items()})
    failures = []
    for schema, value in TYPED:
        for target in (schema, *SCHEMAS):
            failures += raised_by(lambda: made.from_connect_header("t", "h", target, value))  # noqa: B023
    assert failures or converter == "text"
    for error in failures:
        assert_silent(told(error))


SECRETS = [*BYTES.values(), b"text/" + TEXT.encode() + b"; =", b"1;size=3;sha256=" + TEXT.encode(), DIGITS.encode()]

HEADER_NAMES = [
    "h",
    TOKEN_HEADER,
    CLAIMS_HEADER,
    CLAIM_CHECK_HEADER,
    COMPACT_HEADER,
    COMPRESSION_HEADER,
    CONTENT_TYPE,
    ENCRYPTION_HEADER,
    SIGNATURE_HEADER,
    CHUNK_HEADER,
    TRAIL_HEADER,
    "ce_time",
    "ce_specversion",
    "expires-at",
    "traceparent",
]


def every_interceptor(folder: Any) -> list[Interceptor]:
    ring = Keyring({"2026": HmacKey(b"0123456789abcdef0123456789abcdef")}, active="2026")
    tokens = Keyring({"2026": TokenKey("HS256", b"0123456789abcdef0123456789abcdef")}, active="2026")
    return [
        Authentication(tokens, algorithms=["HS256"]),
        Authorization(lambda request: False, authenticated=False),
        ClaimCheck(str(folder)),
        CloudEvents("s", "t"),
        CompactHeaders(HeaderIds({})),
        Compression(),
        Encryption(KEYS),
        HeaderEncryption(["h"], KEYS),
        HeaderLimits(max_headers=0),
        Signing(ring),
        Slicing(),
        Tracing(),
        PaperTrail(),
    ]


def test_what_middleware_refuses(tmp_path: Any) -> None:
    refused: set[str] = set()
    for interceptor in every_interceptor(tmp_path):
        for name in HEADER_NAMES:
            for secret in SECRETS:
                headers = [(name, secret), secret_header()]
                value, key = secret * 3, TEXT.encode()
                came = ConsumerRecord("in", 0, 1, key=key, value=value, timestamp_ms=5, headers=headers)
                sent = ProducerRecord("in", key=key, value=value, timestamp_ms=5, headers=headers)
                for error in (
                    *raised_by(lambda: Chain([interceptor]).ingest(came)),  # noqa: B023
                    *raised_by(lambda: Chain([interceptor]).emit(sent)),  # noqa: B023
                ):
                    if isinstance(error, StateStoreError):
                        refused.add(interceptor.name)
                        assert_silent(told(error))
    assert len(refused) >= 8


READERS: dict[str, Callable[[bytes], Any]] = {
    "avro": text_headers.from_avro,
    "json": lambda content: text_headers.from_json(content.decode(errors="surrogateescape")),
    "url": lambda content: text_headers.from_url(content.decode(errors="surrogateescape")),
    "ids": lambda content: decode_id_headers(content, IdForm.FIXED),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_other_forms_of_headers_can_not_be_read_as(reader: str) -> None:
    failures: list[BaseException] = []
    for name, content in CONTENTS.items():
        if name != "double name":  # names of headers are said
            failures += raised_by(lambda: READERS[reader](content))  # noqa: B023
    assert failures
    for error in failures:
        assert_silent(told(error))
