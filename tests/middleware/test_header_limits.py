"""Header limits: hostile counts and sizes are refused by what is known without parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers
from statestore.errors import ConfigException
from statestore.errors.middleware import HeaderLimitError
from statestore.format.records.header_bytes import parse_count
from statestore.format.varint import encode_varint
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.interception.chain import chain_of
from statestore.interception.task_passages import Ingest
from statestore.middleware import Chain
from statestore.middleware.size.header_limits import HeaderLimits

NAMES = "statestore.interceptors=statestore.middleware.size.header_limits:HeaderLimits\n"


@given(st.lists(st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=4)), max_size=6), min_size=1, max_size=5))
def test_records_beyond_a_limit_are_refused_by_themselves_and_in_columns(given: list[list[tuple[str, bytes]]]) -> None:
    limits = HeaderLimits(max_headers=3, max_bytes=24)
    rows: list[SourceFields] = [
        ("in", 0, offset, 1, b"k", b"v", Headers(pairs).to_bytes()) for offset, pairs in enumerate(given)
    ]
    allowed = [row for row, pairs in zip(rows, given, strict=True) if len(pairs) <= 3 and len(row[6]) <= 24]
    refused: list[int] = []

    def note(source: SourceFields | None, name: str, error: Exception) -> None:
        assert source is not None
        assert isinstance(error, HeaderLimitError)
        refused.append(source[2])

    before = parse_count()
    assert list(Ingest([limits], note).records(rows)) == allowed
    assert sum(part.num_rows for part in Ingest([limits], note).batches(source_batch(rows))) == len(allowed)
    assert parse_count() == before, "nothing is parsed"
    assert len(refused) == 2 * (len(rows) - len(allowed))


def test_a_count_that_lies_is_refused_by_its_number() -> None:
    hostile = Headers.from_bytes(encode_varint(2_000_000_000))
    with pytest.raises(HeaderLimitError) as raised:
        Chain([HeaderLimits()]).ingest(ConsumerRecord("in", 0, 1, key=None, value=None, headers=hostile))
    assert (raised.value.found, raised.value.limit) == (2_000_000_000, 256)


def test_limits_are_configured_and_checked() -> None:
    (made,) = chain_of(f"{NAMES}statestore.limits.max.headers=2\nstatestore.limits.max.bytes=9\n")
    assert repr(made) == "HeaderLimits(2, 9)"
    with pytest.raises(ConfigException, match=r"statestore.limits"):
        chain_of(f"{NAMES}statestore.limits.max.headers=-1\n")
