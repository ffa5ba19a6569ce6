"""Vectors of transformations and predicates: each is configured in mode compat, and applied to one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord, SinkRecord, SourceRecord
from statestore.connect.transforms.connector_config import PREDICATES, TRANSFORMATIONS
from statestore.connect.transforms.field_steps import ExtractField
from statestore.connect.transforms.transformation import Predicate
from statestore.connect.transforms.value_steps import Flatten
from tests.support.connect.forms import Json, decode_schema, decode_value, encode_headers, encode_schema, encode_value
from tests.support.connect.running import error_name

KINDS = {name.rpartition(".")[2]: kind for name, kind in (TRANSFORMATIONS | PREDICATES).items()}
IN_ORDER = (ExtractField, Flatten)
"""What gives the maps that there are, or makes some in an order of its own."""
OF_JAVA = {"Unknown field: ": "IllegalArgumentException"}
"""Java's own exceptions, by how the sentence of our DataException begins."""
TOPIC = "topic"
"""That of records where a vector says nothing of it."""


def run(vector: Json) -> Json:
    try:
        made = _configured(vector["smt"].rpartition(".")[2], vector["config"])
    except Exception as error:
        return {"error": error_name(error), "phase": "configure"}
    record = _decode_record(vector["record"])
    if isinstance(made, Predicate):
        return {"test": made.test(record)}
    before = _encode_record(record)
    try:
        applied = made.apply(record)
    except Exception as error:
        of_java = [name for begin, name in OF_JAVA.items() if str(error).startswith(begin)]
        return {"error": of_java[0] if of_java else error_name(error), "phase": "apply"}
    assert _encode_record(record) == before, "the input was changed"
    assert (applied.kafka_partition, applied.timestamp_ms) == (3, record.timestamp_ms)
    return {"record": _encode_record(_in_order_of_keys(made, record, applied))}


def _configured(name: str, form: Mapping[str, Any]) -> Any:
    kind = KINDS[name]
    config = {key: value if isinstance(value, str | bool) else None for key, value in form.items()}
    return kind.from_properties({"mode": "compat", **config} if "mode" in kind.config.names else config)


def _decode_record(form: Json) -> ConnectRecord:
    headers = ConnectHeaders()
    for header in form["headers"]:
        headers.add(header["key"], decode_value(header["value"]), decode_schema(header["schema"]))
    time = decode_value(form.get("timestamp", {"int64": 1_700_000_000_123}))
    facts: dict[str, Any] = {
        "kafka_partition": 3,
        "key_schema": decode_schema(form.get("keySchema")),
        "key": decode_value(form.get("key")),
        "value_schema": decode_schema(form.get("valueSchema")),
        "value": decode_value(form.get("value")),
        "timestamp_ms": None if time is None else int(time),
        "headers": headers,
    }
    topic = form.get("topic", TOPIC)
    if "offset" in form:
        return SinkRecord(topic, kafka_offset=form["offset"], **facts)
    return SourceRecord(topic, **facts)


def _encode_record(record: ConnectRecord) -> Json:
    return {
        **({} if record.topic == TOPIC else {"topic": record.topic}),
        "keySchema": encode_schema(record.key_schema),
        "key": encode_value(record.key),
        "valueSchema": encode_schema(record.value_schema),
        "value": encode_value(record.value),
        "headers": encode_headers(record.headers),
    }


def _in_order_of_keys(made: Any, given: ConnectRecord, applied: ConnectRecord) -> ConnectRecord:
    """Put a map that a step has made in the order of its keys: in Java it has none, and vectors have that."""
    for side in ("key", "value"):
        value = getattr(applied, side)
        is_made = isinstance(value, Mapping) and value is not getattr(given, side) and not isinstance(made, IN_ORDER)
        if is_made and getattr(applied, f"{side}_schema") is None:
            entries = dict(sorted(value.items(), key=lambda entry: _order(entry[0])))
            applied = applied.new_record(**{side: entries})
    return applied


def _order(key: Any) -> Any:
    return key.encode("utf-16-be", "surrogatepass") if isinstance(key, str) else key
