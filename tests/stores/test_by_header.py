"""Stores whose entries are found by headers: what is asked, what is refused, and what lies on the disk."""

import json
import shutil
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Serdes, Stores, Topology, Windowed
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.header_index import HeaderKeys, IndexedByteStore
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec, index_family
from statestore.dsl import Materialized
from statestore.errors import StoreError
from statestore.format.records.header_bytes import decode_headers, encode_headers, header_values
from statestore.processor.processor import Processor
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, read_metadata
from statestore.testing import TopologyTestDriver
from tests.support.golden.indexed import LONG, STRING, TOTALS, WINDOWS, GoldenState, held, indexed, put
from tests.support.recovery.shards import stored

GOLDEN = Path(__file__).parents[1] / "golden" / "indexed-1"
ROWS = {
    "totals": [
        b"\x0ctenant\x00b",
        b"\x0ctenant\x06reda",
        b"\x0ctenant\x06redb",
        b"\x10trace-id\x8c\x01" + blake2b(LONG, digest_size=16).digest() + b"a",
        b"\x80",
    ],
    "windows": [
        *(segment_prefix(at // 30) + b"\x0ctenant\x06reda" + at.to_bytes(8, "big") + bytes(4) for at in (20, 40)),
        b"\x80",
    ],
}


def index_rows(store: Any) -> list[tuple[bytes, bytes]]:
    assert isinstance(store.committed.bytes, IndexedByteStore)
    return list(store.committed.bytes._index.range(None, None))


def test_the_index_of_a_golden_snapshot_is_used_as_it_is(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "state")
    golden = GoldenState(tmp_path)
    golden.pointer = CommitPointer.from_json((GOLDEN / "pointer.json").read_text())
    for snapshots in (golden.pointer.snapshots, ()):
        shutil.rmtree(tmp_path / "local", ignore_errors=True)
        golden.pointer = replace(golden.pointer, snapshots=snapshots)
        with golden.state.open(golden.pointer) as batch:
            assert batch.copy is not None
            assert bool(batch.copy.restored_from) is bool(snapshots)
            for name, store in batch.stores.items():
                assert index_family(store.spec) == f":{name}:1d2f9d2a004df8e94e0398f22392c746"
                assert index_rows(store) == [(row, b"") for row in ROWS[name]]
    golden.batch(
        lambda stores, _: found.extend(stores["totals"].by_header("trace-id", LONG)) if (found := []) else None
    )


def test_golden_metadata_names_the_indexed_headers() -> None:
    text = (GOLDEN / "statestore.json").read_bytes()
    metadata = StateMetadata.from_json(text, "statestore.json")
    assert [spec.indexed_headers for spec in metadata.stores] == [("tenant", "trace-id")] * 2
    assert metadata.to_json() == text.decode()
    assert json.loads(text)["format"] == 1, "older releases read it, and drop the index from copies that they write to"


def test_another_index_is_recorded_at_the_next_start(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    asked = [
        StateMetadata("indexed-1", 1, "key", (0,), (builder.spec,), ({"name": "n", "type": "source"},))
        for builder in (TOTALS, indexed(TOTALS), TOTALS.with_header_index("other"), TOTALS)
    ]
    for metadata in asked:
        assert agree_on_metadata(location, metadata).stores == metadata.stores
        assert read_metadata(location).stores == metadata.stores  # type: ignore[union-attr]


def test_windows_and_sessions_come_with_their_times(tmp_path: Path) -> None:
    golden = GoldenState(tmp_path)
    golden.batch(put)

    def look(stores: dict[str, Any], _: Any) -> None:
        windows = stores["windows"].read_only()
        value = held(("tenant", b"red"))
        assert list(windows.by_header("tenant", "red")) == [
            (Windowed("a", 20, 30), value),
            (Windowed("a", 40, 50), value),
        ]
        stores["windows"].put("b", value, 95)
        assert [key for key, _ in windows.by_header("tenant", b"red")] == [
            Windowed("a", 40, 50),
            Windowed("b", 95, 105),
        ]

    golden.batch(look)


def test_a_lookup_says_what_is_indexed(tmp_path: Path) -> None:
    golden = GoldenState(tmp_path)

    def ask(stores: dict[str, Any], _: Any) -> None:
        totals = stores["totals"]
        with pytest.raises(StoreError, match="by the header 'other': indexed are 'tenant', 'trace-id'"):
            totals.by_header("other", "1")
        with pytest.raises(TypeError, match="must be bytes or text, not"):
            totals.by_header("tenant", None)
        with pytest.raises(AttributeError, match="can only be read"):
            totals.read_only().put("a", held())

    golden.batch(ask)
    plain = TOTALS.build(MemoryByteStore("totals"))
    with pytest.raises(StoreError, match=r"by the header 'tenant': it has no index. See with_header_index\(\)"):
        plain.by_header("tenant", "red")


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ((), "needs the name of a header"),
        (("",), "must be text, got ''"),
        ((b"a",), "must be text, got b'a'"),
        (("a\ud800",), "must be text, got"),
        (("\ufffd",), r"must be text, got '.'"),
        (("a", "a"), "got a name twice: a, a"),
    ],
)
def test_bad_names_are_refused(names: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TOTALS.with_header_index(*names)


def test_a_store_without_headers_is_refused() -> None:
    builder = Stores.key_value_store_builder(Stores.persistent_key_value_store("totals"), STRING, STRING)
    with pytest.raises(ValueError, match="its format is plain, without headers that could be indexed"):
        builder.with_header_index("tenant")


def test_malformed_headers_are_not_found_and_harm_nothing(caplog: pytest.LogCaptureFixture) -> None:
    spec = indexed(TOTALS).spec
    store = IndexedByteStore(spec, entries := MemoryByteStore("totals"), entries, MemoryByteStore("index"))
    malformed = stored(b"v", 0, b"\x02\x06")  # one header, cut
    no_value = b"\x7f\x7f"  # of more headers than there are bytes
    sound = stored(b"v", 0, encode_headers([("tenant", b"red")]))
    for count in (1, 40):
        keys = [b"%03d" % number for number in range(count)]
        store.write([*((key, malformed) for key in keys), (b"sound", sound), (b"none", no_value)])
        assert list(store.keys_with_header("tenant", b"red")) == [b"sound"]
        assert store.get(keys[0]) == malformed
        store.write([(key, None) for key in [*keys, b"sound", b"none"]])
        assert list(store.keys_with_header("tenant", b"red")) == []
    assert "leaves out an entry with malformed headers" in caplog.text


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b", "ä", "long" * 40]), st.none() | st.binary(max_size=200))))
def test_single_headers_are_read_without_the_others(pairs: list[tuple[str, bytes | None]]) -> None:
    data, wanted = encode_headers(pairs), {b"a", "ä".encode(), b"long" * 40}
    expected = [(key.encode(), value) for key, value in decode_headers(data) if key.encode() in wanted]
    assert (header_values(data, wanted) if data else []) == [pair for pair in expected if pair[1] is not None]


@given(st.lists(st.tuples(st.binary(min_size=8), st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=80))))))
def test_columns_give_the_rows_of_single_entries(entries: list[tuple[bytes, list[tuple[str, bytes]]]]) -> None:
    keys = [key for key, _ in entries]
    headers = [encode_headers(pairs) for _, pairs in entries]
    for spec in (indexed_spec(TOTALS.spec), indexed_spec(WINDOWS.spec)):
        header_keys = HeaderKeys(spec)
        expected = [row for key, each in zip(keys, headers, strict=True) for row in header_keys.of(key, each)]
        columns = pa.array(keys, pa.binary()), pa.array(headers, pa.binary())
        assert header_keys.of_columns(*columns) == expected


def indexed_spec(spec: StoreSpec) -> StoreSpec:
    builder = TOTALS if spec.name == "totals" else WINDOWS
    return builder.with_header_index("a", "c").spec


class Finding(Processor):
    """Answers each record with the keys that had its value as a header, and puts it with that header."""

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.state_store("totals")

    def process(self, record: Any) -> None:
        found = ",".join(key for key, _ in self._store.by_header("tenant", record.value))
        self._store.put_value(record.key, record.value)
        self._context.forward(record.with_value(found))


def test_the_test_driver_has_the_index_over_restarts(tmp_path: Path) -> None:
    topology = Topology().add_source("in", ["orders"], key_serde=STRING, value_serde=STRING)
    topology.add_processor("finding", Finding, ["in"])
    topology.add_state_store(TOTALS.with_header_index("tenant"), "finding")
    topology.add_sink("out", "answers", ["finding"], key_serde=STRING, value_serde=STRING)
    answers = []
    for keys in (["b", "a"], ["c"]):
        with TopologyTestDriver(topology, state_dir=tmp_path) as driver:
            orders = driver.create_input_topic("orders", key_serde=STRING, value_serde=STRING)
            for key in keys:
                orders.pipe_input(key, "red", headers=held(("tenant", b"red")).headers)
            answers += driver.create_output_topic("answers", key_serde=STRING, value_serde=STRING).read_values_to_list()
    assert answers == ["", "b", "a,b"]


def test_tables_of_the_dsl_take_an_index() -> None:
    of = Materialized.as_("t").with_key_serde(STRING).with_value_serde(Serdes.int64()).with_header_index("b", "a")
    builders = [of.key_value_builder(), of.window_builder(10, 10), of.session_builder(10)]
    versioned = Materialized.as_versioned("t", 60).with_key_serde(STRING).with_value_serde(STRING)
    builders.append(versioned.with_header_index("b", "a").key_value_builder())
    assert [builder.spec.indexed_headers for builder in builders] == [("a", "b")] * 4
