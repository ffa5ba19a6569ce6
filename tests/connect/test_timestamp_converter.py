"""TimestampConverter in strict mode, and what is refused in words; vectors have what Kafka does."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from statestore.connect import ConnectRecord, Instant, Int64, Schema, Struct, TransformChain
from statestore.connect.transforms.timestamp_converter import TimestampConverter
from statestore.errors import ConfigException, ConnectException, DataException
from statestore.errors.data import NullValueException

MS = 1_700_000_000_123
ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def whole(value: Any, target: str, schema: Schema | None = None, **facts: Any) -> Any:
    return TimestampConverter.Value(target, **facts).apply(ConnectRecord("t", value_schema=schema, value=value)).value


def test_each_form_becomes_each_other() -> None:
    made = {target: whole(MS, target, format=ISO) for target in ("string", "unix", "Date", "Time", "Timestamp")}
    assert made == {
        "string": "2023-11-14T22:13:20.123Z",
        "unix": MS,
        "Date": Instant(1_699_920_000_000),
        "Time": Instant(80_000_123),
        "Timestamp": Instant(MS),
    }
    for form in (
        Instant(MS),
        "2023-11-14T22:13:20.123Z",
        "2023-11-15T00:43:20.123+02:30",
        "2023-11-14T19:43:20.123-02:30",
    ):
        assert whole(form, "unix", format=ISO) == MS
    for zone in ("+24:00", "+02:60", "+0230", "", "UTC"):
        with pytest.raises(DataException, match="Could not parse timestamp"):
            whole(f"2023-11-14T22:13:20.123{zone}", "unix", format=ISO, mode="compat")
    assert whole(None, "Date") is None


UNITS = {"seconds": 1_700_000_000, "milliseconds": MS, "microseconds": MS * 1000, "nanoseconds": MS * 10**6}


@pytest.mark.parametrize("unit", UNITS)
def test_numbers_have_the_unit_that_is_asked_for(unit: str) -> None:
    found = whole(Instant(MS), "unix", unix_precision=unit)
    assert (found, type(found)) == (UNITS[unit], Int64)
    assert whole(UNITS[unit], "Timestamp", unix_precision=unit).epoch_ms // 1000 == MS // 1000


UNREADABLE = {
    ("2017-02-30", "yyyy-MM-dd"): 1_488_412_800_000,
    ("2017-05-21 and more", "yyyy-MM-dd"): 1_495_324_800_000,
    ("2017-5-21", "yyyy-MM-dd"): 1_495_324_800_000,
    ("16:31:05.123456", "HH:mm:ss.SSSSSS"): 59_588_456,
    ("9" * 5000, "s"): ((1 << 31) - 1) * 1000,
    (f"5E{'9' * 5000}", "s"): 5000,
    (f"5E{'0' * 5000}1", "s"): 50_000,
    (1_000_001, ""): 1,
    (-1_999_999, ""): -1,
}


@pytest.mark.parametrize("given", UNREADABLE)
def test_only_compat_mode_reads_what_does_not_print_as_itself(given: tuple[Any, str]) -> None:
    value, pattern = given
    facts = {"format": pattern, "unix_precision": "nanoseconds"}
    with pytest.raises(DataException):
        whole(value, "Timestamp", **facts)
    assert whole(value, "Timestamp", mode="compat", **facts) == Instant(UNREADABLE[given])


def test_only_compat_mode_takes_the_end_of_64_bits_for_what_is_beyond() -> None:
    most = (1 << 63) - 1
    for value, facts in ((most, {"unix_precision": "seconds"}), (-most, {"unix_precision": "seconds"})):
        with pytest.raises(DataException, match="out of the range"):
            whole(value, "Timestamp", **facts)
        assert whole(value, "Timestamp", mode="compat", **facts) == Instant(value if value > 0 else value - 1)


def test_a_field_of_a_struct_has_the_schema_of_its_form() -> None:
    schema = Schema.struct({"at": Schema.OPTIONAL_INT64_SCHEMA, "n": Schema.INT8_SCHEMA}, optional=True)
    step = pickle.loads(pickle.dumps(TimestampConverter.Key("Date", "at")))
    made = step.apply(ConnectRecord("t", key_schema=schema, key=Struct(schema, {"at": MS, "n": 1})))
    day = Schema.DATE_SCHEMA.as_optional()
    assert made.key_schema == Schema.struct({"at": day, "n": Schema.INT8_SCHEMA}, optional=True)
    assert made.key.get("at") == Instant(1_699_920_000_000)
    nothing = step.apply(ConnectRecord("t", key_schema=schema))
    assert (nothing.key_schema, nothing.key) == (made.key_schema, None)


def test_what_is_no_point_in_time_is_refused() -> None:
    with pytest.raises(ConnectException, match=r"Schema\{INT32\} does not correspond to a known timestamp type"):
        whole(5, "Date", Schema.INT32_SCHEMA)
    with pytest.raises(DataException, match="TimestampConverter does not support float objects"):
        whole(5.0, "Date")
    with pytest.raises(NullValueException, match="A text is no timestamp without a format"):
        whole("2017", "Date")
    with pytest.raises(DataException, match="Could not parse timestamp") as caught:
        whole("secret", "Date", format="yyyy")
    assert "secret" not in str(caught.value)


def test_a_wrong_configuration_names_its_property() -> None:
    kind = {"transforms": "t", "transforms.t.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value"}
    for others, name in (
        ({"target.type": "date"}, "target.type"),
        ({"target.type": "string"}, "format"),
        ({"target.type": "Date", "format": "EEE yyyy"}, "format"),
        ({"target.type": "Date", "unix.precision": "days"}, "unix.precision"),
    ):
        with pytest.raises(ConfigException) as caught:
            TransformChain.from_properties(kind | {f"transforms.t.{each}": value for each, value in others.items()})
        assert caught.value.name == f"transforms.t.{name}"
