"""Records that are CloudEvents, in the binary mode of their binding to Kafka; the extra `cloudevents`.

    ce_NAME := an attribute, as text in UTF-8       content-type := datacontenttype       value := the event's data

`CloudEvents` sends records as events, and lets events in. `event_of` and `record_of` are for user code.
Source: CloudEvents 1.0.2; its Kafka protocol binding.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError
from statestore.errors.middleware import CloudEventRefusedError
from statestore.format.keys.entry_key import sized
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ProducerRecord
from statestore.interception.interceptor import EmittedRecord, IngestedRecord
from statestore.middleware.application import Application, extra, options, value_of
from statestore.middleware.schemas.content_type import CONTENT_TYPE, ContentType

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent

__all__ = ["CloudEvents", "content_id", "event_of", "record_of"]

CE_PREFIX: Final = "ce_"
"""What the names of headers with attributes begin with."""
STRUCTURED: Final = "application/cloudevents+json"
"""The content type of records whose value is a whole event."""

_Attribute: TypeAlias = "str | Callable[[EmittedRecord], str | None] | None"
"""An attribute, or what returns it for a record; None for none."""

_REQUIRED: Final = ("specversion", "id", "source", "type")
_VERSION: Final = "1.0"
_CONTENT_TYPE: Final = "datacontenttype"
_OWN: Final = frozenset({*_REQUIRED, "subject", "time", "dataschema", _CONTENT_TYPE, "data"})
_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""
_STRUCTURED_KIND: Final = "application/cloudevents"
_MOST_ATTRIBUTES: Final = 64
_LONGEST_ATTRIBUTE: Final = 4096
_LARGEST_STRUCTURED_BYTES: Final = 16 << 20
_JSON: Final = re.compile(r"(application|text)/([a-z0-9.-]+\+)?json")
_NAME: Final = re.compile(r"[a-z0-9]+")
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def content_id(record: EmittedRecord) -> str:
    """Return an id that is the same for the same topic, key, value and timestamp, and differs if one of them does.

    So a batch that is run again sends events of the same ids. It is the first 16 bytes of an SHA-256, in hex.
    """
    parts = (record.topic.encode(), str(record.timestamp_ms).encode(), record.key, record.value)
    framed = b"".join(b"\0" if part is None else b"\1" + sized(part) for part in parts)
    return hashlib.sha256(framed).digest()[:16].hex()


def event_of(record: Any) -> CloudEvent:
    """Return the event of a record: its data are the record's value, in structured mode those in the value.

    It takes what has key, value and headers: records of interceptors, clients and processors. A key in UTF-8 is
    `partitionkey`, if no header says it.

    Raises CloudEventRefusedError if the record is not an event, and ExtraMissingError without cloudevents.
    """
    is_structured = _is_structured(record.headers)
    event = _structured_event(record.value) if is_structured else _binary_event(record.headers, record.value)
    attributes = event.get_attributes()
    if (partition_key := _text_of(record.key)) is not None:
        attributes.setdefault("partitionkey", partition_key)
    return event


def record_of(event: CloudEvent, topic: str, *, structured: bool = False) -> ProducerRecord[bytes | None, bytes | None]:
    """Return the record of an event: its key is `partitionkey`, its timestamp the event's time, if there is one.

    Data are written as they are if they are bytes, as UTF-8 if they are text, else as JSON; likewise text if the
    content type is JSON. Raises CloudEventRefusedError for data or attributes that have no such form.
    """
    attributes = {name: value for name, value in event.get_attributes().items() if value is not None}
    key, time = attributes.get("partitionkey"), attributes.get("time")
    at_ms = -1 if time is None else (time - _EPOCH) // timedelta(milliseconds=1)
    key_bytes = None if key is None else str(key).encode()
    if structured:
        value: bytes | None = _library().kafka.to_structured_event(event).value
        headers = [(CONTENT_TYPE, STRUCTURED.encode())]
    else:
        value, headers = _data_bytes(event), list(_pairs(attributes))
    timestamp_ms = at_ms if at_ms >= 0 else None
    return ProducerRecord(topic, key=key_bytes, value=value, timestamp_ms=timestamp_ms, headers=headers)


class CloudEvents(Application):
    """Makes events of what is sent, and checks that what comes is one, in binary mode. Values stay as they are.

    What comes in structured mode goes on in binary mode. What a record's headers said of another event is taken out
    when it is sent. Under Spark a batch that is retried sends the same events, if the callables return the same.

    Args:
        source: the attribute `source`; None leaves what is sent alone, unless `type` is given, which needs it.
        type: the attribute `type`.
        id: the attribute `id`; the default is the same for the same record.
        subject: the attribute `subject`.
        time: whether a record's timestamp is the attribute `time`.
        dataschema: the attribute `dataschema`.
        content_type: the attribute `datacontenttype`; None is what the header `content-type` says, if it is there.
        extensions: other attributes by name, of small letters and digits.
        carried: names of extensions that stay if a record has them, as of the event that it was made of.
        topics: topics whose records are events, None = all; those of others are left alone, both ways.
        required: whether what comes and is not an event is refused; else it passes.
    """

    kind = "cloudevents"
    _options = options(
        STRING="source type subject dataschema content.type", LIST="topics carried", BOOLEAN="time required"
    )
    marks = (CONTENT_TYPE, *(CE_PREFIX + name for name in _REQUIRED))
    not_after: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("compression", "encryption", "slicing", "claim-check", "signing"),
        "an event's data are the value as the serde has written it, and so is a whole event: put cloudevents before",
    )
    brings_in = (f"{CE_PREFIX}*", CONTENT_TYPE)

    def __init__(
        self,
        source: _Attribute = None,
        type: _Attribute = None,
        *,
        id: _Attribute = content_id,
        subject: _Attribute = None,
        time: bool = True,
        dataschema: _Attribute = None,
        content_type: _Attribute = None,
        extensions: Mapping[str, _Attribute] | None = None,
        carried: Collection[str] = (),
        topics: Collection[str] | None = None,
        required: bool = True,
    ) -> None:
        """Raise ValueError for attributes that no event can have, and ExtraMissingError without cloudevents."""
        if (source is None) is not (type is None):
            raise ValueError("an event has a source and a type: give both, or none to send no events")
        self._attributes: Final[dict[str, _Attribute]] = {
            "specversion": _VERSION,
            "id": id,
            "source": source,
            "type": type,
            "subject": subject,
            "dataschema": dataschema,
            _CONTENT_TYPE: content_type,
            **(extensions or {}),
        }
        if taken := sorted((extensions or {}).keys() & _OWN):
            raise ValueError(f"no extensions can be called {', '.join(taken)}: they are attributes of all events")
        self._emits: Final = source is not None
        self._time: Final = time
        self._carried: Final = frozenset(CE_PREFIX + name for name in carried)
        self._topics: Final = None if topics is None else frozenset(topics)
        self._required: Final = required
        fixed = {name: "-" if callable(one) else one for name, one in self._attributes.items() if one is not None}
        if self._emits:
            try:
                _checked(dict(fixed))
            except CloudEventRefusedError as cause:
                raise ValueError(str(cause)) from cause

    def on_emit(self, record: EmittedRecord) -> Sequence[EmittedRecord]:
        """Write the attributes into headers. Raises CloudEventRefusedError if a callable returns an illegal one."""
        if self._emits and self._is_ours(record.topic):
            pairs = dict(_pairs(self._event(record)))
            for name in {header.key for header in record.headers}:
                if name in pairs or (name.startswith(CE_PREFIX) and name not in self._carried):
                    record.headers.remove(name)
            for name, content in pairs.items():
                record.headers.add(name, content)
        return (record,)

    def on_ingest(self, record: IngestedRecord) -> Sequence[IngestedRecord]:
        """Let an event in, in binary mode. Raises CloudEventRefusedError if it is malformed or not there."""
        if not self._is_ours(record.topic):
            return (record,)
        if is_structured := _is_structured(record.headers, is_required=self._required):
            event = _structured_event(record.value)
            others = [
                each for each in record.headers if each.key != CONTENT_TYPE and not each.key.startswith(CE_PREFIX)
            ]
            return (record.copy(value=_data_bytes(event), headers=[*others, *_pairs(event.get_attributes())]),)
        if is_structured is not None:
            _binary_event(record.headers, None)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns | None:
        """Let records in if all are events in binary mode; None: they must be looked at one by one."""
        topics = () if records.topic is None else records.topic.unique().to_pylist()
        are_ours = self._topics is None or self._topics.issuperset(topics)
        return records if are_ours and _are_binary_events(records) else None

    def _is_ours(self, topic: str) -> bool:
        return self._topics is None or topic in self._topics

    def _event(self, record: EmittedRecord) -> dict[str, Any]:
        given = {name: one(record) if callable(one) else one for name, one in self._attributes.items()}
        attributes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if self._time and record.timestamp_ms is not None and 0 <= record.timestamp_ms <= _LATEST_MS:
            attributes["time"] = _EPOCH + timedelta(milliseconds=record.timestamp_ms)
        return _checked(attributes).get_attributes()

    def __repr__(self) -> str:
        return f"CloudEvents(source={self._attributes['source']!r}, type={self._attributes['type']!r})"


@cache
def _library() -> Any:
    with extra("cloudevents"):
        from cloudevents.core.bindings import kafka
        from cloudevents.core.formats.json import JSONFormat
        from cloudevents.core.v1.event import CloudEvent
        from dateutil.parser import isoparse
    return SimpleNamespace(kafka=kafka, event=CloudEvent, json=JSONFormat(), read_time=isoparse)


def _is_structured(headers: Headers, *, is_required: bool = True) -> bool | None:
    """Return whether an event is in structured mode; None for what need not be one. Raises CloudEventRefusedError."""
    value = (value_of(headers, CONTENT_TYPE) or b"").lower()
    if not value.startswith(_STRUCTURED_KIND.encode()):
        if any(header.key.startswith(CE_PREFIX) for header in headers):
            return False
        if is_required:
            raise CloudEventRefusedError("it has neither headers of an event nor the content type of one")
        return None
    try:
        content_type = ContentType.parse(value).type
    except DeserializationError as cause:
        raise CloudEventRefusedError(str(cause)) from cause
    if content_type != STRUCTURED:
        raise CloudEventRefusedError(f"whole events are read as {STRUCTURED}, not as {content_type}")
    return True


def _binary_event(headers: Headers, data: Any) -> CloudEvent:
    attributes: dict[str, Any] = {}
    for name, value in headers:
        if name == CONTENT_TYPE:
            attributes[_CONTENT_TYPE] = _attribute(name, value)
        elif name.startswith(CE_PREFIX):
            attribute = name[len(CE_PREFIX) :]
            if attribute in attributes or attribute == _CONTENT_TYPE:
                raise CloudEventRefusedError(f"header {name[:80]!r} is there twice, or should be {CONTENT_TYPE!r}")
            attributes[attribute] = _attribute(name, value)
    if "time" in attributes:
        attributes["time"] = _time_of(attributes["time"])
    return _checked(attributes, data)


def _structured_event(value: Any) -> CloudEvent:
    if not isinstance(value, bytes) or len(value) > _LARGEST_STRUCTURED_BYTES:
        raise CloudEventRefusedError(f"a whole event is at most {_LARGEST_STRUCTURED_BYTES} bytes of JSON")
    try:
        event: CloudEvent = _library().json.read(_checked, value)
    except CloudEventRefusedError:
        raise
    except Exception as cause:
        raise CloudEventRefusedError(f"its JSON is malformed: {type(cause).__name__}") from cause
    return event


def _checked(attributes: dict[str, Any], data: Any = None) -> CloudEvent:
    """Return an event. Raises CloudEventRefusedError for missing attributes, which the library would make up."""
    if missing := [name for name in _REQUIRED if not attributes.get(name)]:
        raise CloudEventRefusedError(f"it lacks {', '.join(missing)}")
    if len(attributes) > _MOST_ATTRIBUTES:
        raise CloudEventRefusedError(f"it has more than {_MOST_ATTRIBUTES} attributes")
    for name, value in attributes.items():
        if isinstance(value, str) and len(value.encode(errors="surrogatepass")) > _LONGEST_ATTRIBUTE:
            raise CloudEventRefusedError(f"attribute {name[:80]!r} has more than {_LONGEST_ATTRIBUTE} bytes")
    has_time = "time" in attributes
    try:
        event: CloudEvent = _library().event(attributes, data)
    except Exception as cause:
        raise CloudEventRefusedError(f"{cause}"[:300]) from cause
    if not has_time:
        del event.get_attributes()["time"]
    return event


def _pairs(attributes: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for name, value in attributes.items():
        if value is None:
            continue
        yield (CONTENT_TYPE if name == _CONTENT_TYPE else CE_PREFIX + name), _utf8(_attribute_text(name, value))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as cause:
        raise CloudEventRefusedError("it has a lone surrogate, which UTF-8 can't hold") from cause


def _attribute_text(name: str, value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise CloudEventRefusedError(f"attribute {name!r} is of type {type(value).__name__}, which none can have")
    return str(value)


def _attribute(name: str, value: bytes | None) -> str:
    if (text := _text_of(value)) is None:
        raise CloudEventRefusedError(f"header {name[:80]!r} is not text in UTF-8")
    return text


def _text_of(value: Any) -> str | None:
    if not isinstance(value, bytes):
        return value if isinstance(value, str) else None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _time_of(text: str) -> datetime:
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        time: datetime = _library().read_time(text.upper())
    except ValueError as cause:
        raise CloudEventRefusedError("its time is not in the form of RFC 3339") from cause
    return time


def _data_bytes(event: CloudEvent) -> bytes | None:
    data: Any = event.get_data()
    if data is None or isinstance(data, bytes):
        return data
    content_type = event.get_datacontenttype()
    is_json = content_type is None or _JSON.fullmatch(content_type.partition(";")[0].strip().lower())
    if isinstance(data, str) and not is_json:
        return _utf8(data)
    try:
        return _utf8(json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as cause:
        raise CloudEventRefusedError(f"its data have no JSON form: {type(cause).__name__}") from cause


def _are_binary_events(records: RecordColumns) -> bool:
    """Return whether all of the records are sound events in binary mode; False where that is not certain."""
    pairs = records.decoded_headers()
    keys, values = (pairs.flatten().field(name) for name in ("key", "value"))
    rows = pc.list_parent_indices(pairs)
    names = [name for name in keys.unique().to_pylist() if name.startswith(CE_PREFIX)]
    attributes = {name[len(CE_PREFIX) :]: name for name in names}
    if len(names) > _MOST_ATTRIBUTES or not {*_REQUIRED} <= attributes.keys():
        return False
    if not all(_NAME.fullmatch(name) for name in attributes) or attributes.keys() & {"data", _CONTENT_TYPE}:
        return False
    for attribute, name in (attributes | {_CONTENT_TYPE: CONTENT_TYPE}).items():
        mask = pc.equal(keys, name)
        found, at = values.filter(mask), rows.filter(mask).to_numpy()
        is_there_twice = bool((at[1:] == at[:-1]).any())
        is_missing = attribute in _REQUIRED and len(found) < len(records)
        if is_there_twice or is_missing or found.null_count:
            return False
        try:
            if not _are_sound(attribute, found):
                return False
        except pa.ArrowInvalid:
            return False
    return True


def _are_sound(attribute: str, values: pa.BinaryArray) -> bool:
    """Return whether a column has attributes of a name as they should be. Raises ArrowInvalid for what is not UTF-8."""
    texts = values.cast(pa.string())
    if _any(pc.greater(pc.binary_length(values), _LONGEST_ATTRIBUTE)):
        return False
    if attribute == "specversion":
        return not _any(pc.not_equal(texts, _VERSION))
    if attribute in (*_REQUIRED, "subject", "dataschema", _CONTENT_TYPE) and _any(pc.equal(texts, "")):
        return False
    if attribute == _CONTENT_TYPE:
        return not _any(pc.starts_with(pc.utf8_lower(texts), _STRUCTURED_KIND))
    if attribute == "time":
        # Times of other centuries raise here, and are checked one by one.
        texts.cast(pa.timestamp("ns", "UTC"))
        return not _any(pc.invert(pc.match_substring_regex(texts, f"^({_TIME.pattern})$")))
    return True


def _any(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())
