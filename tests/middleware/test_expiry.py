"""Records that say when they expire, and are not let in afterwards; one by one, and in columns."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import ConfigException, FormatError
from statestore.errors.middleware import ExpiryHeaderError, RecordExpiredError
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_in_headers, expiry_value
from statestore.middleware import Chain
from statestore.middleware.lifetime.expiry import ExpiryHeader
from tests.support.passed_records import Clocks, arrived, contents, in_columns, produced, started

NOW_MS = 1_700_000_000_000
VALUES = st.none() | st.integers(NOW_MS - 2, NOW_MS + 2).map(expiry_value) | st.just(b"no time")
PAIRS = st.lists(st.tuples(st.sampled_from([EXPIRY_HEADER, "other", f"not-{EXPIRY_HEADER}"]), VALUES), max_size=3)


def at(now_ms: int, **options: Any) -> ExpiryHeader:
    return started(ExpiryHeader(**options), Clocks(now_ms))


def expiry_of(record: Any) -> int | None:
    return expiry_in_headers(record.headers.to_bytes())


def test_b16_a_record_is_stamped_with_its_timestamp_and_lifetime() -> None:
    (sent,) = Chain([ExpiryHeader(50)]).emit(produced())
    assert list(sent.headers) == [(EXPIRY_HEADER, expiry_value(1_050))]
    (unstamped,) = Chain([ExpiryHeader()]).emit(produced())
    assert list(unstamped.headers) == []


def test_b16_a_record_without_a_timestamp_begins_with_the_batch() -> None:
    record = produced()
    (sent,) = at(NOW_MS, lifetime=50).on_emit(record.copy(timestamp_ms=None))
    assert expiry_of(sent) == NOW_MS + 50


def test_b16_what_the_producer_said_stays() -> None:
    for value in (expiry_value(7), None):
        (sent,) = Chain([ExpiryHeader(50)]).emit(produced(headers=[(EXPIRY_HEADER, value)]))
        assert list(sent.headers) == [(EXPIRY_HEADER, value)]


def test_b16_a_record_is_let_in_until_its_time() -> None:
    (sent,) = Chain([ExpiryHeader(50)]).emit(produced())
    assert contents(at(1_049).on_ingest(arrived(sent))) == contents([sent])
    for now_ms in (1_050, NOW_MS):
        assert contents(at(now_ms).on_ingest(arrived(sent))) == []


def test_b16_what_expired_can_be_refused() -> None:
    record = arrived(produced(headers=[(EXPIRY_HEADER, b"1050")]))
    with pytest.raises(RecordExpiredError, match="has expired at 1050, and it was 1051 when it came") as refused:
        at(1_051, expired="refuse").on_ingest(record)
    assert (refused.value.expiry_ms, refused.value.now_ms) == (1_050, 1_051)
    with pytest.raises(RecordExpiredError):
        at(1_051, expired="refuse").on_ingest_columns(in_columns([record]))


def test_b16_a_malformed_header_is_refused_and_its_value_not_told() -> None:
    record = arrived(produced(headers=[("until", b"my secret")]))
    assert contents(at(NOW_MS).on_ingest(record)) == contents([record])
    for ingest in (ExpiryHeader.on_ingest, lambda by, record: by.on_ingest_columns(in_columns([record]))):
        with pytest.raises(ExpiryHeaderError, match="'until' does not say when its record expires") as refused:
            ingest(at(NOW_MS, header="until"), record)
        assert "secret" not in str(refused.value)


@given(st.lists(st.tuples(PAIRS, st.integers(0, 2**63 - 1)), max_size=5), st.integers(1, 2**63 - 1))
def test_b16_columns_are_stamped_as_records(rows: list[Any], lifetime_ms: int) -> None:
    records = [produced(headers=pairs).copy(timestamp_ms=time_ms) for pairs, time_ms in rows]
    in_one = ExpiryHeader(lifetime_ms).on_emit_columns(in_columns(records))
    assert contents(in_one) == contents(
        each for record in records for each in ExpiryHeader(lifetime_ms).on_emit(record)
    )


@given(st.lists(PAIRS, max_size=5))
def test_b16_columns_are_let_in_as_records(rows: list[Any]) -> None:
    records = [arrived(produced(headers=pairs)) for pairs in rows]
    one_by_one: list[Any] = []
    try:
        for record in records:
            one_by_one += at(NOW_MS).on_ingest(record)
    except ExpiryHeaderError:
        with pytest.raises(ExpiryHeaderError):
            at(NOW_MS).on_ingest_columns(in_columns(records))
    else:
        assert contents(at(NOW_MS).on_ingest_columns(in_columns(records))) == contents(one_by_one)


def test_b16_how_many_were_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    interceptor = at(NOW_MS)
    late = [arrived(produced(headers=[(EXPIRY_HEADER, b"5")]))] * 3
    assert contents(interceptor.on_ingest(late[0])) == []
    assert len(interceptor.on_ingest_columns(in_columns(late))) == 0
    with caplog.at_level("INFO"):
        interceptor.close()
        interceptor.close()
    assert [record.getMessage() for record in caplog.records] == ["4 records had expired when they came"]


def test_b16_in_a_configuration() -> None:
    given_options = {"lifetime.ms": "50", "header": "until", "expired": "refuse"}
    made = ExpiryHeader.from_config({f"statestore.expiry.{name}": value for name, value in given_options.items()})
    assert repr(pickle.loads(pickle.dumps(made))) == "ExpiryHeader(50, header='until', expired='refuse')"
    assert repr(ExpiryHeader.from_config({})) == repr(ExpiryHeader())
    for name, value in (("lifetime.ms", "0"), ("expired", "keep"), ("header", "")):
        with pytest.raises(ConfigException, match=r"statestore\.expiry\."):
            ExpiryHeader.from_config({f"statestore.expiry.{name}": value})


def test_b16_headers_that_can_t_be_read_are_an_error() -> None:
    malformed = pa.array([b"\x02\x14expires-at"], pa.binary())
    with pytest.raises(FormatError):
        at(NOW_MS).on_ingest_columns(in_columns([produced()]).with_columns(headers=malformed))
