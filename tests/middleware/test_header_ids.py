"""Header ids: ranges that belong to owners, two vendors who don't know each other, and headers read under ids alone."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import ConfigException, FormatError
from statestore.errors.middleware import ChainOrderError, CompactHeadersError, HeaderRangeError
from statestore.format.records.header_bytes import parse_count
from statestore.kip82.id_headers import HeaderIds, from_id_bytes, to_id_bytes
from statestore.middleware import Chain, Interceptor
from statestore.middleware.size.compact_headers import COMPACT_HEADER, CompactHeaders
from statestore.middleware.size.header_ids import PRIVATE_IDS, PUBLIC_IDS, HeaderRegistry, IdRange
from tests.support.passed_records import arrived, contents, in_columns, produced, through

ACME = HeaderRegistry({IdRange(1000, 1999): "acme"}).with_ids("acme", {"acme-trace": 1000, "acme-token": 1001})
OTHER = HeaderRegistry().with_range("other", 2000, 2000).with_ids("other", {"other-region": 2000})
HOUSE = HeaderRegistry().with_private_ids({"team": -1, "cost-centre": -64})
BOTH = ACME.merged(OTHER).merged(HOUSE)
KEYS = st.sampled_from([*BOTH.ids, "not-registered", COMPACT_HEADER]) | st.text(max_size=3)
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=6)


def test_b1_an_id_is_a_signed_32_bit_integer_public_or_private() -> None:
    assert (PUBLIC_IDS, PRIVATE_IDS) == ((1, 2**31 - 1), (-(2**31), -1))
    whole = HeaderRegistry().with_range("acme", *PUBLIC_IDS).with_ids("acme", {"first": 1, "last": 2**31 - 1})
    assert (whole.id_of("last"), whole.key_of(1), whole.owner_of(5)) == (2**31 - 1, "first", "acme")
    assert HOUSE.owner_of(-1) is None


@pytest.mark.parametrize(
    ("first", "last"), [(1000, 1999), (1000, 1000), (999, 1000), (1999, 2000), (1, 2**31 - 1), (1500, 1600)]
)
def test_b1_an_overlap_raises(first: int, last: int) -> None:
    with pytest.raises(HeaderRangeError, match=r"header ids .* 'acme'"):
        ACME.with_range("other", first, last)
    with pytest.raises(HeaderRangeError):
        ACME.merged(HeaderRegistry({IdRange(first, last): "other"}))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=6))
def test_b1_ranges_are_taken_if_and_only_if_they_are_apart(given_ranges: list[tuple[int, int]]) -> None:
    registry, taken = HeaderRegistry(), dict[int, str]()
    for number, (first, size) in enumerate(given_ranges):
        owner, ids = f"owner-{number}", range(first, first + size + 1)
        if taken.keys() & set(ids):
            with pytest.raises(HeaderRangeError):
                registry.with_range(owner, ids[0], ids[-1])
        else:
            registry = registry.with_range(owner, ids[0], ids[-1])
            taken.update(dict.fromkeys(ids, owner))
    assert [registry.owner_of(each) for each in range(50)] == [taken.get(each) for each in range(50)]


@pytest.mark.parametrize(
    ("first", "last"), [(0, 5), (-5, -1), (-5, 5), (7, 6), (1, 2**31), (-(2**31), -1), (2**31, 2**31)]
)
def test_b1_what_is_private_or_no_range_can_t_be_owned(first: int, last: int) -> None:
    with pytest.raises(HeaderRangeError, match=r"'acme' can't own the header ids .*: public are 1 to 2147483647"):
        HeaderRegistry().with_range("acme", first, last)


def test_b1_an_id_outside_of_its_owners_range_raises() -> None:
    for header_id in (999, 2000, -1, 0):
        with pytest.raises(HeaderRangeError, match=rf"'h' can't have the id {header_id}: 'acme' owns 1000 to 1999"):
            ACME.merged(OTHER).with_ids("acme", {"h": header_id})
    with pytest.raises(HeaderRangeError, match="'nobody' owns no ids"):
        ACME.with_ids("nobody", {"h": 1000})
    with pytest.raises(HeaderRangeError, match="'h' has the id 5, which no owner's range holds"):
        HeaderRegistry(ids={"h": 5})
    with pytest.raises(HeaderRangeError, match="'h' can't have the id 5: private are -2147483648 to -1"):
        ACME.with_private_ids({"h": 5})


def test_b1_an_id_belongs_to_one_header_and_a_header_has_one_id() -> None:
    with pytest.raises(HeaderRangeError, match="headers 'acme-trace' and 'h' have the same id 1000"):
        ACME.with_ids("acme", {"h": 1000})
    with pytest.raises(HeaderRangeError, match="header 'acme-trace' has the id 1000, and can't have 1002"):
        ACME.with_ids("acme", {"acme-trace": 1002})
    assert ACME.with_ids("acme", {"acme-trace": 1000}).ids == ACME.ids
    with pytest.raises(HeaderRangeError, match="headers 'team' and 'owner' have the same id -1"):
        HOUSE.merged(HeaderRegistry().with_private_ids({"owner": -1}))


def test_b1_two_vendors_register_without_knowing_each_other() -> None:
    assert BOTH.ids == {**ACME.ids, **OTHER.ids, **HOUSE.ids}
    assert list(BOTH.ranges.values()) == ["acme", "other"]
    assert OTHER.merged(ACME).ranges == ACME.merged(OTHER).ranges
    assert BOTH.merged(BOTH).to_json() == BOTH.to_json()
    with pytest.raises(HeaderRangeError, match="header ids 2000 to 2000 belong to 'other', and to 'else'"):
        OTHER.merged(HeaderRegistry({IdRange(2000, 2000): "else"}))


def test_b1_a_registry_is_a_file_of_json(tmp_path: Path) -> None:
    BOTH.dump(tmp_path / "ids.json")
    loaded = HeaderRegistry.load(tmp_path / "ids.json")
    assert (loaded.ids, loaded.ranges) == (BOTH.ids, BOTH.ranges)
    assert loaded.to_json() == (tmp_path / "ids.json").read_text() == pickle.loads(pickle.dumps(loaded)).to_json()


RANGE = {"owner": "a", "first": 1, "last": 2}


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"format": None},
        {"more": 1},
        {"ranges": [RANGE, RANGE]},
        {"ranges": [{**RANGE, "more": 1}]},
        {"ranges": [{**RANGE, "first": True}]},
        {"ranges": [{**RANGE, "owner": 5}]},
        {"ranges": [{**RANGE, "owner": ""}]},
        {"ranges": {}, "ids": []},
        {"ranges": 5},
        {"ids": {"h": 1.0}},
        {"ids": {"h" * 1_001: 1}},
        {"ids": {"h": 2**40}},
        {"ids": {f"h{number}": -1 - number for number in range(100_001)}},
    ],
)
def test_b1_what_is_no_registry_is_refused(changed: dict[str, Any]) -> None:
    document = {"format": 1, "ranges": [RANGE], "ids": {}, **changed}
    with pytest.raises((FormatError, HeaderRangeError)):
        HeaderRegistry.from_json(json.dumps(document))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "5",
        '{"format":1,"ranges":[],"ids":{"h":-1,"h":-2}}',
        '{"format":1,"ranges":[],"ids":{"h":1e999}}',
        '{"format":1,"ranges":[],"ids":{"h":NaN}}',
    ],
)
def test_b1_malformed_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="header registry: is not one that is known"):
        HeaderRegistry.from_json(text)


def test_b1_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * ((16 << 20) + 1))
    with pytest.raises(FormatError, match="is larger than"):
        HeaderRegistry.load(tmp_path / "large")
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(FormatError, match="not text in UTF-8"):
        HeaderRegistry.load(tmp_path / "binary")


@given(st.lists(st.tuples(st.sampled_from(sorted(BOTH.ids)), st.none() | st.binary(max_size=300)), max_size=8))
def test_b2_values_are_any_bytes(pairs: list[tuple[str, bytes | None]]) -> None:
    headers = Headers(pairs)
    assert from_id_bytes(to_id_bytes(headers, BOTH), BOTH) == headers


class Stamps(Interceptor):
    """Adds a header of its own where records leave, and takes it off where they come in."""

    def __init__(self, header: str, value: bytes) -> None:
        self.header, self.value = header, value

    @property
    def name(self) -> str:
        return self.header

    def on_emit(self, record: Any) -> Any:
        record.headers.add(self.header, self.value)
        return [record]

    def on_ingest(self, record: Any) -> Any:
        assert record.headers.last_header(self.header).value == self.value
        record.headers.remove(self.header)
        return [record]


@given(PAIRS, st.binary(max_size=300), st.binary(max_size=300))
def test_b2_a_middlewares_values_are_untouched_by_others(
    pairs: list[tuple[str, bytes | None]], one: bytes, two: bytes
) -> None:
    pairs = [pair for pair in pairs if pair[0] not in ("acme-trace", "other-region")]
    chain = Chain([Stamps("acme-trace", one), CompactHeaders(BOTH), Stamps("other-region", two)])
    (sent,) = chain.emit(produced(headers=pairs))
    (got,) = chain.ingest(arrived(sent))
    assert contents([got]) == [(b"k", b"v", pairs)]


@given(PAIRS)
def test_b2_headers_come_back_in_their_order_with_and_without_ids(pairs: list[tuple[str, bytes | None]]) -> None:
    compact = CompactHeaders(BOTH)
    sent = compact.on_emit(produced(headers=pairs))[0]
    assert [header.key for header in sent.headers] == ([COMPACT_HEADER] if pairs else [])
    assert contents([through(compact, produced(headers=pairs))]) == [(b"k", b"v", pairs)]


@given(st.lists(PAIRS, max_size=4))
def test_b2_columns_are_the_same_as_records(rows: list[list[tuple[str, bytes | None]]]) -> None:
    compact = CompactHeaders(BOTH)
    records = [produced(headers=pairs) for pairs in rows]
    emitted = compact.on_emit_columns(in_columns(records))
    assert contents(emitted) == contents(each for record in records for each in compact.on_emit(record))
    assert contents(compact.on_ingest_columns(emitted)) == contents(records)


FORMED = st.lists(st.tuples(st.sampled_from(sorted(BOTH.ids)), st.none() | st.binary(max_size=3)), max_size=3)
FRAMES = FORMED.map(lambda pairs: to_id_bytes(Headers(pairs), BOTH)) | st.binary(max_size=4) | st.none()
ONE_OR_MORE = st.lists(st.tuples(st.sampled_from([COMPACT_HEADER] * 3 + ["other"]), FRAMES), max_size=2)


@given(st.lists(ONE_OR_MORE, max_size=4))
def test_b3_columns_are_taken_apart_as_records_whatever_is_in_them(rows: list[list[tuple[str, bytes | None]]]) -> None:
    compact, records = CompactHeaders(BOTH), [arrived(produced(headers=pairs)) for pairs in rows]
    try:
        wanted = contents(each for record in records for each in compact.on_ingest(record))
    except CompactHeadersError as refused:
        with pytest.raises(CompactHeadersError, match=re.escape(str(refused))):
            compact.on_ingest_columns(in_columns(records))
    else:
        assert contents(compact.on_ingest_columns(in_columns(records))) == wanted


def test_b3_many_headers_in_a_record_come_back() -> None:
    compact, record = CompactHeaders(BOTH), produced(headers=[("team", b"%d" % number) for number in range(100)])
    emitted = compact.on_emit_columns(in_columns([record, produced()]))
    assert contents(compact.on_ingest_columns(emitted)) == contents([record, produced()])


def test_b3_a_broker_reads_the_headers_without_key_and_value() -> None:
    pairs = [("acme-trace", b"\x01"), ("team", None), ("unregistered", b"\xff")]
    compact = CompactHeaders(BOTH)
    (sent,) = compact.on_emit(produced(key=b"\xff no text", value=b"\x00 no JSON", headers=pairs))
    value = sent.headers.last_header(COMPACT_HEADER).value
    before = parse_count()
    assert compact.decode(value) == Headers(pairs)
    # The layout, byte by byte: three headers, ids of varints, one that stands under its name.
    assert value == (
        b"\x06"  # three headers
        b"\xd0\x0f\x02\x01"  # id 1000, one byte
        b"\x01\x01"  # id -1, null
        b"\x00\x20\x02\x18unregistered\x02\xff"  # id 0: KIP-1271's encoding of one header
    )
    assert parse_count() - before <= 1, "the one that has no id"


def test_b3_the_payload_is_never_parsed() -> None:
    records = in_columns([produced(headers=[("team", b"a")])] * 2)
    unreadable = records.with_columns(key=pa.nulls(2), value=pa.nulls(2))
    assert (
        contents(CompactHeaders(BOTH).on_emit_columns(unreadable))
        == [(None, None, [(COMPACT_HEADER, to_id_bytes(Headers([("team", b"a")]), BOTH))])] * 2
    )


@pytest.mark.parametrize(
    "value", [None, b"", b"\x02", b"\x02\x07\x02\x01", b"\x02\x00\x00", b"\xff" * 9, b"\x02\x01\x01\0"]
)
def test_b3_malformed_headers_are_refused_and_others_let_be(value: bytes | None) -> None:
    compact = CompactHeaders(BOTH)
    record = arrived(produced(headers=[(COMPACT_HEADER, value)]))
    if value:
        with pytest.raises(CompactHeadersError, match="header '_h' does not hold the headers of its record"):
            compact.on_ingest(record)
        with pytest.raises(CompactHeadersError):
            compact.on_ingest_columns(in_columns([record]))
    else:
        assert contents(compact.on_ingest(record)) == [(b"k", b"v", [])]
    others = [("a", b"1"), ("b", b"_h")]
    assert contents(compact.on_ingest(arrived(produced(headers=others)))) == [(b"k", b"v", others)]


def test_b3_what_stands_beside_the_one_header_comes_behind() -> None:
    compact = CompactHeaders(BOTH)
    (sent,) = compact.on_emit(produced(headers=[("team", b"1")]))
    sent.headers.add("mirror", b"2")
    assert contents(compact.on_ingest(arrived(sent)))[0][2] == [("team", b"1"), ("mirror", b"2")]


def test_b3_in_a_configuration(tmp_path: Path) -> None:
    BOTH.dump(tmp_path / "ids.json")
    path = str(tmp_path / "ids.json")
    made = CompactHeaders.from_config({"statestore.header-ids.registry": path, "statestore.header-ids.header": "all"})
    (sent,) = pickle.loads(pickle.dumps(made)).on_emit(produced(headers=[("team", b"1")]))
    assert [header.key for header in sent.headers] == ["all"]
    with pytest.raises(ConfigException, match="registry"):
        CompactHeaders.from_config({})
    with pytest.raises(ConfigException, match="can't be read"):
        CompactHeaders.from_config({"statestore.header-ids.registry": path + "x"})


class Encrypts(Interceptor):
    kind = "header-encryption"


def test_b3_an_order_that_can_t_work_is_refused() -> None:
    Chain([Encrypts(), CompactHeaders(BOTH)])
    with pytest.raises(ChainOrderError, match="are in one header by then"):
        Chain([CompactHeaders(BOTH), Encrypts()])


def test_b3_names_and_ids_that_can_t_be() -> None:
    with pytest.raises(ValueError, match="header must be the name of a header"):
        CompactHeaders(BOTH, "")
    with pytest.raises(ValueError, match="header 'zero' can't have the id 0"):
        CompactHeaders(HeaderIds({"zero": 0}))
    with pytest.raises(TypeError, match="the name of a header must be a str, got 5"):
        HeaderRegistry(ids={5: -1})  # type: ignore[dict-item]
