"""The ingest hook: what it may change, what it may not, and what becomes of its errors."""

from __future__ import annotations

import pytest

from statestore import ConsumerRecord, Headers
from statestore.errors import ProcessorError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.headers.topic_columns import SourceFields
from statestore.middleware import IngestedRecord
from tests.support.ingest import ingest_records

HEADERS = encode_headers([("a", b"1")])
RECORDS: list[SourceFields] = [("in", 0, n, 10 + n, b"k", b"v%d" % n, HEADERS) for n in range(3)]


def changed(record: IngestedRecord, **fields: object) -> IngestedRecord:
    given = {"key": record.key, "value": record.value, "timestamp_ms": record.timestamp_ms, "headers": record.headers}
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return ConsumerRecord(**{**place, **given, **fields})


def test_headers_value_and_timestamp_may_change() -> None:
    def hook(record: IngestedRecord) -> IngestedRecord:
        record.headers.add("hop", b"%d" % record.offset)
        return changed(record, value=b"new", timestamp_ms=99) if record.offset == 1 else record

    first, second, third = ingest_records(RECORDS, hook)
    assert first == ("in", 0, 0, 10, b"k", b"v0", encode_headers([("a", b"1"), ("hop", b"0")]))
    assert second == ("in", 0, 1, 99, b"k", b"new", encode_headers([("a", b"1"), ("hop", b"1")]))
    assert Headers.from_bytes(third[6]).last_header("hop") == ("hop", b"2")


def test_records_can_be_left_out_and_those_that_are_not_looked_into_are_not_parsed() -> None:
    parsed = parse_count()
    assert list(ingest_records(RECORDS, lambda record: None if record.offset == 1 else record)) == [
        RECORDS[0],
        RECORDS[2],
    ]
    assert parse_count() == parsed


@pytest.mark.parametrize("change", [{"topic": "other"}, {"partition": 1}, {"offset": 7}, {"key": b"other"}])
def test_what_decides_about_the_shard_must_not_change(change: dict[str, object]) -> None:
    with pytest.raises(ProcessorError, match="must not change topic, partition, offset or key") as caught:
        list(ingest_records(RECORDS, lambda record: changed(record, **change)))
    assert (caught.value.node, caught.value.offset) == ("lambda", 0)


def test_an_error_of_the_hook_says_which_record_it_was() -> None:
    def hook(record: IngestedRecord) -> IngestedRecord:
        if record.offset == 2:
            raise KeyError("tenant")
        return record

    with pytest.raises(
        ProcessorError, match=r"'hook' failed in on_ingest\(\) on record in-0 at offset 2: KeyError"
    ) as caught:
        list(ingest_records(RECORDS, hook))
    assert isinstance(caught.value.__cause__, KeyError)


def test_anything_but_a_record_is_refused() -> None:
    with pytest.raises(ProcessorError, match="must return a ConsumerRecord or None, not str of 4"):
        list(ingest_records(RECORDS, lambda record: "text"))  # type: ignore[arg-type, return-value]
