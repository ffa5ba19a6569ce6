"""Functions of columns of headers, against plain Python: many drawn rows in one DataFrame, with and without ANSI."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from time import tzset
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from statestore import ConsumerRecord
from statestore.connect import ConnectIngest
from statestore.connect.values.strict import STRICT
from statestore.errors import ConfigException, DataException
from statestore.spark import header_functions as hf
from statestore.spark.shards.schema import HEADERS
from tests.support.spark.queries import spark_settings

MODES = {
    "as Spark comes": {"spark.sql.ansi.enabled": "true", "spark.sql.codegen.wholeStage": "true"},
    "without ANSI, without code": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.session.timeZone": "America/New_York",
    },
}
KEYS = ("a", "b", "", "ключ 'x'")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Header(NamedTuple):
    key: str | None
    value: bytes | None


Row = list[Header | None] | None


in_each_mode = pytest.mark.parametrize("mode", MODES)


@contextmanager
def in_mode(spark: SparkSession, mode: str) -> Iterator[None]:
    """Set what Spark's results may depend on, and ours must not."""
    before = {name: spark.conf.get(name, None) for name in MODES[mode]}
    for name, value in MODES[mode].items():
        spark.conf.set(name, value)
    yield
    for name, earlier in before.items():
        if earlier is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, earlier)


# The model: what each function is to return, for one row.


def named(row: Row) -> list[Header]:
    return [header for header in row or [] if header is not None and header.key is not None]


def values(row: Row, key: str) -> list[bytes | None]:
    return [header.value for header in named(row) if header.key == key]


def last(row: Row, key: str) -> bytes | None:
    return (values(row, key) or [None])[-1]


def latest(row: Row, key: str | None = None) -> Row:
    if row is None:
        return None
    kept: list[Header | None] = []
    for place, header in enumerate(row):
        later = {each.key for each in named(row[place + 1 :])}
        repeated = header is not None and header.key is not None and header.key in later
        if not (repeated and (key is None or header.key == key)):  # type: ignore[union-attr]
            kept.append(header)
    return kept


def without(row: Row, *keys: str) -> Row:
    return None if row is None else [header for header in row if header is None or header.key not in keys]


def renamed(row: Row, key: str, new_key: str) -> Row:
    if row is None:
        return None
    return [Header(new_key, header.value) if header and header.key == key else header for header in row]


def text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def whole_number(bits: int, value: bytes | None) -> int | None:
    found = re.fullmatch(r"([+-]?[0-9]+)(\.0*)?", text(value) or "", re.ASCII)
    number = int(found[1]) if found else None
    return number if number is not None and -(1 << bits - 1) <= number < 1 << bits - 1 else None


def double(value: bytes | None) -> float | None:
    found = text(value) or ""
    if found in ("NaN", "Infinity", "-Infinity"):
        return float(found)
    if not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", found):
        return None
    number = float(found)
    lost = math.isinf(number) or (number == 0 and re.match(r"[+-]?[0.]*[1-9]", found))
    return None if lost else number


def instant_ms(value: bytes | None) -> int | None:
    found = text(value) or ""
    for whole in (found, found + "T00:00:00.000Z"):
        if re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}\.[0-9]{3}Z", whole, re.ASCII):
            try:
                return (datetime.fromisoformat(whole[:-1] + "+00:00") - EPOCH) // timedelta(milliseconds=1)
            except ValueError:
                return None
    return None


def day(value: bytes | None) -> date | None:
    ms = instant_ms(value)
    return None if ms is None or ms % 86_400_000 else (EPOCH + timedelta(milliseconds=ms)).date()


def boolean(value: bytes | None) -> bool | None:
    return {b"true": True, b"false": False}.get(value, {1: True, 0: False}.get(whole_number(32, value)))  # type: ignore[arg-type]


# What is drawn, and what each table has besides.

ODD_TEXTS = [
    *["true", "false", "TRUE", "null", "NaN", "Infinity", "-Infinity", "inf", "1.0E10", "1e400", "1e-400", "-0.0"],
    *[
        "-0",
        "007",
        "+7",
        " 7",
        "7 ",
        "5\n",
        "1d",
        "0x1p3",
        "1.",
        ".5",
        "2",
        "2.0",
        "\uff12",
        "2147483647",
        "2147483648",
    ],
    *["-2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "0e0", "0.0e400"],
    *["2017-05-21", "2017-13-45", "2017-5-1", "2017-02-29", "1582-10-14", "1582-10-15", "12017-01-01", "2017-05-21\n"],
    *["24:00:00.000Z", "00:00:00.000Z", "16:31:05.387Z", "16:31:05.387", "23:59:60.000Z", "16:31:05.387Z\n"],
    *["2017-05-21T16:31:05.387Z", "2017-05-21T16:31:05.387+01:00", "2017-05-21 16:31:05.387Z", "2017-05-21T16:31:05Z"],
    *[
        "1582-10-14T23:59:59.999Z",
        "9999-12-31T23:59:59.999Z",
        "2017-05-21T24:00:00.000Z",
        "2017-05-21T00:00:00.000Z",
        "0001-01-01",
        "0000-01-01",
        "1500-01-01",
        "",
        "text",
        "\U0001f600",
    ],
]
NOT_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"7\x80", b"\xe2\x82"]
ODD_ROWS: list[Row] = [
    *([Header("a", odd.encode())] for odd in ODD_TEXTS),
    *([Header("b", None), Header("a", odd)] for odd in NOT_UTF8),
    *[None, [], [None], [None, Header(None, b"1"), None, Header(None, None)], [Header("a", None)]],
    [
        Header("a", b"1"),
        Header("b", b"2"),
        Header("a", b"3"),
        Header(None, b"4"),
        Header("b", None),
        Header(None, b"5"),
    ],
]
TEXTS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-(2**31) - 2, 2**31 + 2).map(str),
    st.floats().map(str),
    st.dates(date(1500, 1, 1)).map(str),
    st.times().map(lambda one: one.isoformat("milliseconds") + "Z"),
    st.datetimes(datetime(1500, 1, 1)).map(lambda one: one.isoformat(timespec="milliseconds") + "Z"),
    st.from_regex(r"[-+ ]?[0-9]{1,3}[. 0-9eE]{0,3}[\n ]?", fullmatch=True),
)
VALUES = st.one_of(st.none(), TEXTS.map(str.encode), TEXTS.map(str.encode), st.binary(max_size=6), st.just(b""))
HEADER = st.builds(Header, st.sampled_from([*KEYS, *KEYS, None]), VALUES)
ROWS = st.one_of(st.none(), st.lists(st.one_of(*[HEADER] * 9, st.none()), max_size=7))
TABLES = st.lists(ROWS, min_size=100, max_size=200).map(lambda rows: ODD_ROWS + rows)
few = settings(max_examples=2, phases=[Phase.explicit, Phase.generate])  # each is a job; the first draws little


def evaluate(spark: SparkSession, rows: Sequence[Row], columns: dict[str, Column]) -> list[dict[str, Any]]:
    frame = spark.createDataFrame(list(enumerate(rows)), f"number int, headers {HEADERS}")
    found = frame.coalesce(1).select("number", *(column.alias(name) for name, column in columns.items())).collect()
    return [row.asDict() for row in sorted(found)]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return bool(one == other) and type(one) is type(other)


def comparable(value: Any) -> Any:
    """Return a value of Spark's with the model's types: Row is a tuple, bytearray bytes."""
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, tuple):
        return Header(*map(comparable, value))
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def differences(spark: SparkSession, rows: Sequence[Row], cases: dict[str, tuple[Column, Any]]) -> list[Any]:
    """Return the cases in which a row's column is not what the model makes of it: case, row, found, wanted."""
    found = evaluate(spark, rows, {name: column for name, (column, _) in cases.items()})
    return [
        (name, row, results[name], model(row))
        for row, results in zip(rows, found, strict=True)
        for name, (_, model) in cases.items()
        if not same(comparable(results[name]), model(row))
    ]


def merged(row: Row, *, last: bool) -> dict[str | None, bytes | None]:
    headers = named(row)
    return {header.key: header.value for header in (headers if last else reversed(headers))}


@in_each_mode
@given(rows=TABLES)
@few
def test_headers_are_found_and_changed_as_in_python(spark: SparkSession, mode: str, rows: list[Row]) -> None:
    key = KEYS[3]
    chained = hf.retain_latest(hf.rename_header(hf.drop_headers(F.col("headers"), "a"), "b", key), key)
    cases: dict[str, tuple[Column, Any]] = {
        "last": (hf.header_last("headers", "a"), lambda row: last(row, "a")),
        "last, empty": (hf.header_last(F.col("headers"), ""), lambda row: last(row, "")),
        "all": (hf.headers_all("headers", key), lambda row: values(row, key)),
        "has": (hf.has_header("headers", key), lambda row: bool(values(row, key))),
        "names": (hf.header_names("headers"), lambda row: list(dict.fromkeys(each.key for each in named(row)))),
        "with": (hf.with_header("headers", "a", b"\xff"), lambda row: [*(row or []), Header("a", b"\xff")]),
        "with null": (hf.with_header("headers", key, None), lambda row: [*(row or []), Header(key, None)]),
        "drop": (hf.drop_headers("headers", key), lambda row: without(row, key)),
        "drop two": (hf.drop_headers("headers", "a", ""), lambda row: without(row, "a", "")),
        "drop none": (hf.drop_headers("headers"), lambda row: row),
        "rename": (hf.rename_header("headers", "a", "b"), lambda row: renamed(row, "a", "b")),
        "latest": (hf.retain_latest("headers"), latest),
        "latest of key": (hf.retain_latest("headers", "b"), lambda row: latest(row, "b")),
        "map, last": (hf.headers_to_map("headers"), lambda row: merged(row, last=True)),
        "latest of column": (hf.retain_latest(F.col("headers")), latest),
        "map of column": (hf.headers_to_map(F.col("headers")), lambda row: merged(row, last=True)),
        "map, first": (hf.headers_to_map("headers", duplicates="first"), lambda row: merged(row, last=False)),
        "map, unique": (
            hf.headers_to_map(hf.retain_latest("headers"), duplicates="error"),
            lambda row: merged(row, last=True),
        ),
        "chained": (chained, lambda row: latest(renamed(without(row, "a"), "b", key), key)),
        "last of chained": (hf.header_last(chained, key), lambda row: last(renamed(row, "b", key), key)),
    }
    with in_mode(spark, mode):
        assert differences(spark, rows, cases) == []


@in_each_mode
@given(rows=TABLES)
@few
def test_texts_are_read_as_in_python(spark: SparkSession, mode: str, rows: list[Row]) -> None:
    typed = {
        "string": (hf.header_string, text),
        "int": (hf.header_int, lambda value: whole_number(32, value)),
        "long": (hf.header_long, lambda value: whole_number(64, value)),
        "double": (hf.header_double, double),
        "boolean": (hf.header_boolean, boolean),
        "date": (hf.header_date, day),
        "timestamp": (lambda *args, **kw: F.unix_millis(hf.header_timestamp(*args, **kw)), instant_ms),
    }
    in_filter = F.coalesce(hf.header_int("headers", "b", on_error="null"), F.lit(0))
    cases: dict[str, tuple[Column, Any]] = {
        name: (read("headers", "a", on_error="null"), lambda row, model=model: model(last(row, "a")))
        for name, (read, model) in typed.items()
    }
    # What is right does not raise: of a header without a value if the value was wrong.
    right = lambda read: F.when(read("headers", "a", on_error="null").isNotNull(), read("headers", "a"))  # noqa: E731
    cases |= {f"{name}, raising": (right(typed[name][0]), cases[name][1]) for name in typed}
    cases["in a filter"] = (in_filter, lambda row: whole_number(32, last(row, "b")) or 0)
    with in_mode(spark, mode):
        assert differences(spark, rows, cases) == []


def strictly(convert: Callable[[Any, Any], Any], value: bytes) -> Any:
    try:
        return convert(None, value.decode())
    except (DataException, UnicodeDecodeError):
        return None


@given(found=st.one_of(st.sampled_from(ODD_TEXTS), TEXTS))
def test_texts_are_read_as_strict_conversions_do(found: str) -> None:
    """The model is theirs, but for numbers with an exponent, digits that are not ASCII, and dates as numbers."""
    value = found.encode()
    for bits, convert in ((32, STRICT.convert_to_integer), (64, STRICT.convert_to_long)):
        number = whole_number(bits, value)
        assert number == strictly(convert, value) or (
            number is None and not re.fullmatch(r"[-+]?[0-9][-+0-9. ]*", found, re.ASCII)
        )
    truth = boolean(value)
    assert truth == strictly(STRICT.convert_to_boolean, value) or (truth is None and "e" in found.lower())
    of_float = strictly(STRICT.convert_to_double, value)
    assert (
        of_float is None or same(double(value), float(of_float)) or not re.fullmatch("[-+0-9].*[0-9]", found, re.ASCII)
    )
    if found.isascii() and not re.fullmatch("[-+0-9.eE]*", found):
        moment, of_day = (strictly(each, value) for each in (STRICT.convert_to_timestamp, STRICT.convert_to_date))
        assert instant_ms(value) == (None if moment is None else moment.epoch_ms) or found.startswith("0000")
        assert day(value) == (None if of_day is None else of_day.to_date()) or found.startswith("0000")


@pytest.mark.parametrize(
    ("column", "row", "message"),
    [
        (lambda: hf.header_int("headers", "a"), [Header("a", b"7.5")], "header 'a' is no INT32: 3 bytes"),
        (lambda: hf.header_string("headers", "a"), [Header("a", b"x\xff")], "header 'a' is no UTF-8 text: 2 bytes"),
        (lambda: hf.header_double("headers", "b"), [Header("b", b"9" * 400)], "header 'b' is no FLOAT64: 400 bytes"),
        (
            lambda: hf.headers_to_map("headers", duplicates="error"),
            [Header("b", b"1"), Header("a", b"2"), Header("c", b"2"), Header("a", b"2")],
            "header 'a' occurs more than once",
        ),
    ],
)
def test_what_is_wrong_ends_the_query_and_names_the_header(
    spark: SparkSession, column: Any, row: Row, message: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        evaluate(spark, [row], {"found": column()})
    assert message in str(raised.value)


def test_the_session_s_converter_reads_where_none_is_named(spark: SparkSession) -> None:
    rows = [[Header("a", b'"x"')]]
    columns = {
        "session": lambda: hf.header_typed("headers", "a", "string"),
        "named": lambda: hf.header_typed("headers", "a", "string", converter="StringConverter"),
        "all": lambda: hf.typed_headers("headers")[0]["text"],
    }
    without = {name: column() for name, column in columns.items()}
    in_json = {"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}
    with spark_settings(spark, {f"spark.statestore.{name}": value for name, value in in_json.items()}):
        found = {name: column() for name, column in columns.items()}
        chain = {"transforms": "t", "transforms.t.type": "InsertHeader"}
        chain |= {"transforms.t.header": "b", "transforms.t.value.literal": "y z"}
        frame = spark.createDataFrame([([("a", b"1")],)], "headers array<struct<key: string, value: binary>>")
        made, named = (
            hf.transform_records(frame, each).first() for each in (chain, {**chain, "header.converter": "Simple"})
        )
    assert [bytes(row.headers[-1].value) for row in (made, named)] == [b'"y z"', b"y z"]
    assert evaluate(spark, rows, found) == [{"number": 0, "session": "x", "named": '"x"', "all": "x"}]
    assert evaluate(spark, rows, without) == [{"number": 0, "session": '"x"', "named": '"x"', "all": '"x"'}]
    with (
        spark_settings(spark, {"spark.statestore.header.converter": "Jsn"}),
        pytest.raises(ConfigException, match=r"spark\.statestore\.header\.converter"),
    ):
        hf.typed_headers("headers")


PRINTED: dict[str, tuple[Any, bytes | None]] = {
    "text": ("é \n", "é \n".encode()),
    "bytes": (b"\xff\x00", b"\xff\x00"),
    "bytearray": (bytearray(b"\xff"), b"\xff"),
    "boolean": (True, b"true"),
    "int": (-7, b"-7"),
    "long": (2**40, b"1099511627776"),
    "double": (1e10, b"1.0E10"),
    "not a number": (math.nan, b"NaN"),
    "small decimal": (Decimal("0.0000001"), b"1E-7"),
    "decimal": (Decimal("1.50"), b"1.50"),
    "date": (date(1970, 1, 1), b"1970-01-01"),
    "time before 1970": (datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc), b"1969-12-31T23:59:59.999Z"),
    "midnight": (datetime(2017, 5, 21), b"2017-05-21T00:00:00.000Z"),
    "elsewhere": (datetime(2017, 5, 21, tzinfo=timezone(timedelta(hours=2))), b"2017-05-20T22:00:00.000Z"),
    "array": (['"]', None], b'["\\"]",null]'),
}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in another time zone."""
    monkeypatch.setenv("TZ", "America/New_York")
    tzset()
    yield
    monkeypatch.undo()
    tzset()


@in_each_mode
@pytest.mark.usefixtures("elsewhere")
def test_values_are_printed_by_their_type(spark: SparkSession, mode: str) -> None:
    in_spark = {
        "map": ("map('a', 1.5D)", b'{"a":1.5}'),
        "struct": ("named_struct('a', cast(null as int), 'b', date'2017-05-21')", b'{"a":null,"b":"2017-05-21"}'),
        "no timestamp": ("cast(null as timestamp)", None),
        "nothing": ("null", None),
        "row": ("number", b"0"),
        "float": ("cast(0.1 as float)", b"0.1"),
        "ntz": ("timestamp_ntz'2017-05-21 01:02:03.4'", b"2017-05-21T01:02:03.400Z"),
    }
    expected = {name: text for name, (_, text) in [*PRINTED.items(), *in_spark.items()]}
    with in_mode(spark, mode):
        added = {name: value for name, (value, _) in PRINTED.items()}
        added |= {name: F.expr(expression) for name, (expression, _) in in_spark.items()}
        columns = {name: hf.with_header("headers", name, value) for name, value in added.items()}
        columns["again"] = hf.header_timestamp(hf.with_header("headers", "x", PRINTED["elsewhere"][0]), "x")
        ((found),) = evaluate(spark, [None], columns)
    assert found.pop("again").timestamp() == PRINTED["elsewhere"][0].timestamp()
    assert {name: comparable(found[name]) for name in expected} == {n: [Header(n, t)] for n, t in expected.items()}


def test_what_returns_headers_mentions_the_column_once(spark: SparkSession) -> None:
    """Else a chain of ten calls would be an expression of thousands. A name costs nothing."""
    headers = F.upper("headers")
    for changed in (
        hf.with_header(headers, "a", 1),
        hf.drop_headers(headers, "a", "b"),
        hf.rename_header(headers, "a", "b"),
        hf.retain_latest(headers),
        hf.retain_latest(headers, "a"),
        hf.headers_to_map(headers),
        hf.headers_to_map(headers, duplicates="error"),
    ):
        assert str(changed).count("upper(headers)") == 1


def test_results_have_the_type_of_headers(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], f"headers {HEADERS}")
    chained = hf.retain_latest(hf.with_header(hf.rename_header(hf.drop_headers("headers", "a"), "b", "c"), "d", 1.5))
    assert frame.select(chained).schema[0].dataType.simpleString() == HEADERS


def test_wrong_arguments_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="on_error must be one of raise, null, not 'skip'"):
        hf.header_int("headers", "a", on_error="skip")
    with pytest.raises(ValueError, match="duplicates must be one of last, first, error, not 'list'"):
        hf.headers_to_map("headers", duplicates="list")
    with pytest.raises(TypeError, match="the key of a header must be a str, not b'a'"):
        hf.header_last("headers", b"a")  # type: ignore[arg-type]


CHAIN = {
    "transforms": "drop,late,mark,skip",
    "transforms.drop.type": "DropHeaders",
    "transforms.drop.headers": "a",
    "transforms.late.type": "InsertHeader",
    "transforms.late.header": "late",
    "transforms.late.value.literal": "1.0",
    "transforms.late.predicate": "tombstone",
    "transforms.mark.type": "InsertHeader",
    "transforms.mark.header": "a",
    "transforms.mark.value.literal": "x",
    "transforms.mark.predicate": "orders",
    "transforms.mark.negate": "true",
    "transforms.skip.type": "Filter",
    "transforms.skip.predicate": "marked",
    "predicates": "tombstone,orders,marked",
    "predicates.tombstone.type": "RecordIsTombstone",
    "predicates.orders.type": "TopicNameMatches",
    "predicates.orders.pattern": "or?ders|or",
    "predicates.marked.type": "HasHeaderKey",
    "predicates.marked.name": "b",
}


@in_each_mode
def test_a_chain_does_to_rows_what_it_does_to_records(spark: SparkSession, mode: str) -> None:
    texts: list[tuple[str | None, bytes | None]] = [
        ("orders", b"v"),
        ("or", None),
        ("orders-2", b"v"),
        ("reorders", None),
    ]
    headers: list[list[Header]] = [[], [Header("a", b"1"), Header("c", None)], [Header("b", b"1")]]
    rows = [(topic, value, each) for topic, value in texts for each in headers]
    expected = []
    for place, (topic, value, each) in enumerate(rows):
        made = ConnectIngest(CHAIN)(ConsumerRecord(str(topic), 0, place, key=b"", value=value, headers=each))
        if made is not None:
            expected.append((topic, value, [tuple(header) for header in made.headers]))
    assert 0 < len(expected) < len(rows)
    with in_mode(spark, mode):
        frame = spark.createDataFrame([*rows, (None, b"v", None)], f"topic string, value binary, headers {HEADERS}")
        found = hf.transform_records(frame.coalesce(1), CHAIN).collect()
    as_python = [(row.topic, comparable(row.value), comparable(row.headers)) for row in found]
    assert as_python == [*expected, (None, b"v", [("a", b"x")])]


def test_a_chain_that_looks_into_values_is_refused(spark: SparkSession) -> None:
    chain = {"transforms": "a", "transforms.a.type": "HeaderFrom$Value", "transforms.a.operation": "copy"}
    chain |= {"transforms.a.fields": "f", "transforms.a.headers": "h"}
    with pytest.raises(ValueError, match=r"does not have all of these steps: .*HeaderFrom"):
        hf.transform_records(spark.createDataFrame([], f"headers {HEADERS}"), chain)
