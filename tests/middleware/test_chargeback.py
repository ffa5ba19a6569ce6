"""Who has sent how much: totals equal the traffic, in columns and one by one, and after restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Processor, Record, Serdes, Topology
from statestore.errors import ConfigException
from statestore.errors.middleware import ChainOrderError, TrailRefusedError
from statestore.format.keys.entry_key import key_at_front
from statestore.headers import size_of, to_record_v2
from statestore.middleware import Chain
from statestore.middleware.application import TRAIL_HEADER
from statestore.middleware.lineage.chargeback import (
    NOBODY,
    OTHERS,
    USAGE_STORE,
    Chargeback,
    Traffic,
    Usage,
    read_usage,
    usage_of,
)
from statestore.middleware.lineage.trail import Entry, PaperTrail, Trail
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.passed_records import in_columns, produced
from tests.support.processors import PassingColumns

NAMES = st.sampled_from(["ada", "bob", "chen", ""])
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3)
TRAILS = st.lists(NAMES, max_size=3).map(
    lambda names: [(TRAIL_HEADER, Trail(tuple(Entry(name, None, "t", 5) for name in names)).to_bytes())] * bool(names)
)
BYTES = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(lambda key, value, headers, trail: produced(key, value, headers + trail), BYTES, BYTES, HEADERS, TRAILS),
    max_size=8,
)


def sizes_of(records: list[Any]) -> list[int]:
    """What record sizes say, which encode whole records."""
    return [size_of(to_record_v2(record, base_timestamp_ms=1000)).content_bytes for record in records]


@given(RECORDS, st.sampled_from(["sender", "origin"]))
def test_b17_totals_equal_the_traffic(records: list[Any], charge: Any) -> None:
    by_principal = usage_of(records, charge)
    total = Traffic()
    for traffic in by_principal.values():
        total += traffic
    assert total == Traffic(len(records), sum(sizes_of(records)))
    assert usage_of(in_columns(records), charge) == by_principal


def test_b17_sender_and_origin() -> None:
    trail = Trail((Entry("shop", None, "a", 1), Entry("mirror", None, "b", 2, None, "a")))
    records = [produced(headers=[(TRAIL_HEADER, trail.to_bytes())]), produced()]
    sizes = sizes_of(records)
    assert usage_of(records) == {"mirror": Traffic(1, sizes[0]), NOBODY: Traffic(1, sizes[1])}
    assert usage_of(records, "origin") == {"shop": Traffic(1, sizes[0]), NOBODY: Traffic(1, sizes[1])}


class Twice(Processor):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        for _ in range(2):
            self.context.forward(record)


def topology_of(supplier: Any) -> Topology:
    topology = Topology()
    topology.add_source("in", ["in"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_processor("p", supplier, ["in"])
    topology.add_sink("out", "out", ["p"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    return topology


def usage_in(driver: TopologyTestDriver) -> dict[str, Usage]:
    with driver.get_key_value_store(USAGE_STORE).all() as entries:
        return read_usage(list(entries))


SENT = st.lists(st.tuples(st.binary(max_size=3), BYTES, st.none() | st.sampled_from(["ada", "bob"])), max_size=6)


@pytest.mark.parametrize("supplier", [Twice, PassingColumns])
def test_b17_what_a_query_keeps_equals_what_its_topics_hold(supplier: Any) -> None:
    @settings(max_examples=10)  # each opens a RocksDB twice
    @given(SENT)
    def totals_are_equal(sent: list[tuple[bytes, bytes | None, str | None]]) -> None:
        records = []
        for key, value, by_whom in sent:
            headers = [] if by_whom is None else [(TRAIL_HEADER, Trail((Entry(by_whom),)).to_bytes())]
            records.append(TestRecord(key, value, 1, headers))
        chain = [PaperTrail("query"), Chargeback()]
        with TopologyTestDriver(topology_of(supplier), interceptors=chain) as driver:
            ends = driver.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            ends.pipe_micro_batch(records[:3])
            driver.restart(restore_from="changelog")
            ends.pipe_record_list(records[3:])
            out = driver.create_output_topic("out", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            written = out.read_records_to_list()
            found = usage_in(driver)
        came = usage_of(produced(record.key, record.value, record.headers) for record in records)
        went = usage_of(produced(record.key, record.value, record.headers) for record in written)
        assert {name: usage.ingoing for name, usage in found.items() if usage.ingoing.records} == came
        assert {name: usage.outgoing for name, usage in found.items() if usage.outgoing.records} == went
        assert set(went) <= {"query"}
        assert len(written) == len(sent) * (2 if supplier is Twice else 1)

    totals_are_equal()


def test_b17_more_principals_than_are_kept_are_others_together() -> None:
    with TopologyTestDriver(topology_of(Twice), interceptors=[Chargeback("origin", max_principals=2)]) as driver:
        ends = driver.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        for number in range(10):
            headers = [(TRAIL_HEADER, Trail((Entry(f"p{number}"),)).to_bytes())]
            ends.pipe_record_list([TestRecord(b"k", b"v", 1, headers)])
        found = usage_in(driver)
    assert {name: (usage.ingoing.records, usage.outgoing.records) for name, usage in found.items()} == {
        "p0": (1, 2),
        "p1": (1, 2),
        OTHERS: (8, 16),
    }


@pytest.mark.parametrize("supplier", [Twice, PassingColumns])
def test_b17_totals_of_shards_add_up_also_where_they_come_to_lie_in_one(supplier: Any) -> None:
    entries = []
    for key in (b"a", b"b"):
        with TopologyTestDriver(topology_of(supplier), interceptors=[Chargeback()]) as driver:
            ends = driver.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            ends.pipe_micro_batch([TestRecord(key, b"v", 1)])
            with driver.get_key_value_store(USAGE_STORE).all() as found:
                entries += list(found)
    assert [key_at_front(key) for key, _ in entries] == [b"a", b"b"], "each goes where the records of its key go"
    went = Traffic(4, 12) if supplier is Twice else Traffic(2, 6)
    assert read_usage(entries) == {NOBODY: Usage(Traffic(2, 6), went)}


def test_b17_before_the_trail_it_is_refused() -> None:
    with pytest.raises(ChainOrderError, match="charges by the trail"):
        Chain([Chargeback(), PaperTrail("a")])
    assert len(Chain([PaperTrail("a"), Chargeback()])) == 2


def test_a_malformed_trail_is_refused_and_not_counted() -> None:
    chargeback = Chargeback()
    good, bad = produced(), produced(headers=[(TRAIL_HEADER, b"[]")])
    with pytest.raises(TrailRefusedError):
        chargeback.on_emit_columns(in_columns([good, bad]))
    assert chargeback._usage == {}


def test_what_can_not_be_is_refused() -> None:
    for wrong in ({"charge": "nobody"}, {"max_principals": 0}):
        with pytest.raises(ValueError, match=r"charge|max_principals"):
            Chargeback(**wrong)
    assert repr(Chargeback.from_config({"statestore.chargeback.charge": "origin"})) == "Chargeback('origin')"
    with pytest.raises(ConfigException):
        Chargeback.from_config({"statestore.chargeback.charge": "nobody"})


def test_headers_cost_a_byte_even_if_there_are_none() -> None:
    assert usage_of([produced(b"k", None)]) == {NOBODY: Traffic(1, 2)}
    assert usage_of(in_columns([produced(b"k", None, Headers())])) == {NOBODY: Traffic(1, 2)}
    assert usage_of([]) == usage_of(in_columns([])) == {}
