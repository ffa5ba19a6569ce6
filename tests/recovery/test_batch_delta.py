"""The delta of a batch, whole in memory or written as it spills: the same records, the same order, bounded batches."""

import json
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import LocalDirectoryError
from statestore.errors.state import DurableFileCorruptedError, LocalDiskFullError, SpilledDeltaCorruptedError
from statestore.format.records.header_bytes import encode_headers
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.batch_delta import BatchDelta
from statestore.recovery.commit.changelog import ChangelogRecord, batch_changelog
from statestore.recovery.commit.delta import METADATA_KEY, SCHEMA, Delta, DeltaInfo, changelog_records, encode_delta
from statestore.recovery.location.durable_json import digest
from tests.support.arrow_memory import counted_memory
from tests.support.recovery.shards import TOTALS, stored
from tests.support.recovery.spilling import small_space

INFO = DeltaInfo("state-1", 3, 7)
VERSIONS = StoreSpec("versions", StoreKind.VERSIONED, StoreFormat.WITH_HEADERS, 10_000, 1_000)
PLAIN = StoreSpec("plain", StoreKind.KEY_VALUE, StoreFormat.PLAIN)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SpillSpace]:
    with small_space(tmp_path / "copy-0.spill", 1 << 30) as space:
        yield space


class Written:
    """A batch's changelogs with what was written to them, in two halves with a spill between them if asked."""

    def __init__(self, space: SpillSpace, *, spilled: bool) -> None:
        self.changelogs = {spec.name: batch_changelog(spec, space.pending) for spec in (TOTALS, VERSIONS, PLAIN)}
        self.delta = BatchDelta(INFO, self.changelogs, {"versions": 44}, space)
        self.context = TaskRecordContext()
        self.context.timestamp_ms = 5
        self.write([(b"a", b"1"), (b"b", b"1"), (b"c", None)])
        if spilled:
            assert self.delta.held_bytes() > 0
            self.delta.spill()
            assert (self.delta.held_bytes(), [len(log) for log in self.changelogs.values()]) == (0, [0, 0, 0])
        self.context.timestamp_ms = 6
        self.write([(b"b", b"2"), (b"d", b"2"), (b"a", None)])

    def write(self, changes: list[tuple[bytes, bytes | None]]) -> None:
        headers = encode_headers([("h", b"1"), ("h", None)])
        for key, value in changes:
            whole = None if value is None else stored(value, self.context.timestamp_ms, headers)
            self.changelogs["totals"].append(key, whole, self.context)
            self.changelogs["versions"].append(
                key, None if value is None else b"\x00" + value, self.context, self.context.timestamp_ms
            )
            self.changelogs["plain"].append(key, value, self.context)


def records_of(delta: Delta) -> dict[str, list[tuple]]:
    found: dict[str, list[tuple]] = {}
    for name, batch in delta.batches():
        found.setdefault(name, []).extend(tuple(record) for record in changelog_records(batch))
    return found


def test_what_spilled_and_what_did_not_say_the_same(tmp_path: Path) -> None:
    with small_space(tmp_path / "one", 1 << 30) as one, small_space(tmp_path / "two", 1 << 30) as two:
        held, spilled = Written(one, spilled=False).delta.finish(), Written(two, spilled=True).delta.finish()
        assert isinstance(held.content, pa.Buffer)
        assert isinstance(spilled.content, Path)
        content = spilled.content.read_bytes()
    assert (spilled.size_bytes, spilled.digest) == (len(content), digest(content))
    assert (held.size_bytes, held.digest) == (held.content.size, digest(held.content))
    deltas = Delta(held.content, "held"), Delta(pa.py_buffer(content), "spilled")
    assert [delta.info for delta in deltas] == [INFO, INFO]
    assert deltas[0].stores == deltas[1].stores
    assert deltas[1].logged_store("versions").stream_time_ms == 44
    whole, parts = (records_of(delta) for delta in deltas)
    assert whole["versions"] == parts["versions"], "every write, in order"
    for name in ("totals", "plain"):
        last = {record[0]: record for record in parts[name]}
        assert last == {record[0]: record for record in whole[name]}, "of several the last one counts"
    assert len(parts["totals"]) == 6


@pytest.mark.parametrize("spilled", [False, True])
def test_b6_what_was_written_is_shown_before_it_is_durable(space: SpillSpace, spilled: bool) -> None:
    written = Written(space, spilled=spilled)
    finished = written.delta.finish()
    shown: dict[str, Iterable[ChangelogRecord]] = {}
    written.delta.show(shown.__setitem__)
    content = finished.content.read_bytes() if isinstance(finished.content, Path) else finished.content
    wanted = records_of(Delta(pa.py_buffer(content), "finished"))
    assert {name: list(map(tuple, records)) for name, records in shown.items()} == wanted
    assert {name: len(list(records)) for name, records in shown.items()} == {
        name: len(records) for name, records in wanted.items()
    }, "it can be iterated again"


@pytest.mark.parametrize("spilled", [False, True])
def test_b6_only_stores_that_were_written_to_are_shown(space: SpillSpace, spilled: bool) -> None:
    changelogs = {spec.name: batch_changelog(spec, space.pending) for spec in (TOTALS, PLAIN)}
    delta = BatchDelta(INFO, changelogs, {}, space)
    changelogs["plain"].append(b"k", None, TaskRecordContext())
    if spilled:
        delta.spill()
    delta.finish()
    shown: list[str] = []
    delta.show(lambda name, _: shown.append(name))
    assert shown == ["plain"]
    delta.close()


def flip_a_bit(delta: Path) -> None:
    content = bytearray(delta.read_bytes())
    content[content.rindex(b"\x28\xb5\x2f\xfd")] ^= 1
    delta.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink])
def test_b6_what_the_disk_did_not_keep_is_not_shown(space: SpillSpace, damage: Callable[[Path], None]) -> None:
    delta = Written(space, spilled=True).delta
    finished = delta.finish()
    damage(finished.content)
    with pytest.raises(SpilledDeltaCorruptedError, match=r"shard 3.*delta\.arrow"):
        delta.show(lambda _, records: list(records))


def test_a_mapped_file_is_read_batch_by_batch(space: SpillSpace) -> None:
    finished = Written(space, spilled=True).delta.finish()
    with pa.memory_map(str(finished.content)) as source:
        delta = Delta(source.read_buffer(), "mapped")
        assert [(name, batch.num_rows) for name, batch in delta.batches()] == [
            (name, 3) for name in ("totals", "versions", "plain", "totals", "versions", "plain")
        ]
        assert sum(batch.num_rows for _, batch in delta.batches()) == 18


def test_nothing_written_is_no_delta(space: SpillSpace) -> None:
    assert BatchDelta(INFO, {"totals": batch_changelog(TOTALS)}, {}, space).finish() is None
    assert not space.directory.exists()


def test_record_batches_are_bounded(space: SpillSpace) -> None:
    context = TaskRecordContext()
    many, large, versions = (batch_changelog(spec) for spec in (TOTALS, TOTALS, VERSIONS))
    for number in range(10_000):
        many.append(b"%06d" % number, stored(b""), context)
        versions.append(b"k", b"\x00" + b"v" * 1_000, context, number)
    for number in range(10):
        large.append(b"%d" % number, stored(b"v" * (1 << 20)), context)
    delta = Delta(encode_delta(INFO, {"many": many, "large": large, "versions": versions}, {})[0], "here")
    rows: dict[str, list[int]] = {}
    for name, batch in delta.batches():
        rows.setdefault(name, []).append(batch.num_rows)
        assert batch.nbytes < (5 << 20)
    assert {name: sum(counts) for name, counts in rows.items()} == {"many": 10_000, "large": 10, "versions": 10_000}
    assert max(rows["many"]) <= 4_096
    assert max(rows["large"]) <= 4
    assert [
        record.timestamp_ms
        for name, batch in delta.batches()
        if name == "versions"
        for record in changelog_records(batch)
    ] == list(range(10_000))


def test_damage_in_a_later_batch_is_found_when_it_is_read(space: SpillSpace) -> None:
    finished = Written(space, spilled=True).delta.finish()
    content = bytearray(finished.content.read_bytes())
    place = content.rindex(b"\x28\xb5\x2f\xfd")  # where the last compressed buffer begins
    content[place : place + 4] = b"\0\0\0\0"
    delta = Delta(pa.py_buffer(bytes(content)), "file://damaged.arrow")
    assert delta.info == INFO
    for read in (lambda: list(delta.batches()), delta.verify):
        with pytest.raises(DurableFileCorruptedError, match=r"damaged\.arrow"):
            read()


def test_a_full_disk_is_named(space: SpillSpace) -> None:
    # The kernel's own device that is always full.
    (space.make_directory() / "delta.arrow").symlink_to("/dev/full")
    changelogs = {"totals": batch_changelog(TOTALS, space.pending)}
    delta = BatchDelta(INFO, changelogs, {}, space)

    def write() -> None:
        for number in range(10_000):
            changelogs["totals"].append(b"%09d" % number, stored(b"v" * 100), TaskRecordContext())
        delta.spill()
        delta.finish()

    with pytest.raises(LocalDiskFullError, match=r"shard 3.*delta\.arrow.*larger disk") as caught:
        write()
    assert caught.value.path == str(space.directory / "delta.arrow")
    delta.close()


@contextmanager
def short_files(size_bytes: int) -> Iterator[None]:
    """Have the operating system refuse to make a file longer than that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class ManyVersions:
    """A batch of so many puts that they are to spill."""

    def __init__(self, space: SpillSpace) -> None:
        self.pending = space.pending
        self.pending.limit_bytes = 1_000
        self.changelog = batch_changelog(VERSIONS, self.pending)
        self.delta = BatchDelta(INFO, {"versions": self.changelog}, {}, space)

    def write(self) -> None:
        for number in range(20_000):
            self.changelog.append(b"%09d" % (number * number), b"\x00" + b"v" * 100, TaskRecordContext(), number)


def test_a_spill_that_failed_is_final_even_if_there_is_space_again(space: SpillSpace) -> None:
    batch = ManyVersions(space)
    batch.write()
    with short_files(10_000), pytest.raises(LocalDirectoryError, match=r"delta\.arrow.*File too large") as first:
        batch.pending.relieve()
    batch.write()
    for go_on in (batch.pending.relieve, batch.delta.finish, batch.delta.finish):
        with pytest.raises(LocalDirectoryError) as again:
            go_on()
        assert again.value is first.value
    batch.delta.close()


def test_an_end_that_failed_is_final_too(space: SpillSpace) -> None:
    batch = ManyVersions(space)
    batch.write()
    batch.pending.relieve()
    assert batch.pending.spills == 1
    with short_files(10_000), pytest.raises(LocalDirectoryError, match="File too large") as first:
        batch.delta.finish()
    with pytest.raises(LocalDirectoryError) as again:
        batch.delta.finish()
    assert again.value is first.value


@pytest.mark.parametrize(
    "metadata",
    [
        '{"format":3,"state_id":"s","shard":1e999,"version":1}',
        '{"format":3,"state_id":"s","shard":0,"version":1e999}',
        '{"format":3,"state_id":"s","shard":-1,"version":1}',
        '{"format":3,"state_id":"s","shard":0,"version":1,"stores":{"a":{"format":"PLAIN","stream_time_ms":1e999}}}',
        '{"format":3,"state_id":"s","shard":0,"version":1,"stores":{"a":{"format":["PLAIN"],"stream_time_ms":1}}}',
        '{"format":3,"state_id":"s","shard":0,"version":1,"stores":[]}',
        "[" * 100_000,
    ],
    ids=lambda metadata: metadata[:100],
)
def test_metadata_that_no_writer_writes_is_damage(metadata: str) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA.with_metadata({METADATA_KEY: metadata})):
        pass
    with pytest.raises(DurableFileCorruptedError, match=r"hostile\.arrow: is not a readable delta file"):
        Delta(sink.getvalue(), "file://hostile.arrow")


def delta_of(format_number: int, values: list[bytes]) -> pa.Buffer:
    """Return a delta with one record batch, as no writer writes it."""
    metadata = {"format": format_number, "state_id": "s", "shard": 0, "version": 1, "stores": {}}
    count = len(values)
    names = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array(["totals"]))
    headers = pa.repeat(pa.scalar(b"", pa.binary()), count)
    last = SCHEMA.field("header_bytes")
    if format_number < 3:
        last = pa.field("headers", HEADERS_TYPE, nullable=False)
        headers = pa.array([[]] * count, HEADERS_TYPE)
    schema = pa.schema([*list(SCHEMA)[:-1], last]).with_metadata({METADATA_KEY: json.dumps(metadata)})
    keys, times = pa.array([b"%d" % number for number in range(count)], pa.binary()), pa.array(range(count), pa.int64())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch([names, keys, pa.array(values, pa.binary()), times, headers], schema=schema))
    return sink.getvalue()


@pytest.mark.parametrize("format_number", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 4_000])
def test_a_delta_that_inflates_without_bound_is_refused_before_it_does(format_number: int, rows: int) -> None:
    forged = delta_of(format_number, [bytes((100 << 20) // rows)] * rows)
    assert forged.size < 60_000
    with counted_memory() as peak:
        delta = Delta(forged, "file://forged.arrow")
        with pytest.raises(
            DurableFileCorruptedError, match=r"forged\.arrow: .*inflates to 1\d{8}, .* 67108864 are taken"
        ):
            delta.verify()
    assert peak() < 1_000_000


@pytest.mark.parametrize("format_number", [1, 2, 3])
def test_not_more_records_are_together_than_are_written_together(format_number: int) -> None:
    Delta(delta_of(format_number, [b""] * 4_096), "most").verify()
    with pytest.raises(DurableFileCorruptedError, match="4097 records are together, 4096 are allowed"):
        Delta(delta_of(format_number, [b""] * 4_097), "more").verify()


@pytest.mark.parametrize("spilled", [False, True])
def test_a_huge_record_of_nothing_much_is_read_as_it_was_written(space: SpillSpace, spilled: bool) -> None:
    changelogs = {"plain": batch_changelog(PLAIN, space.pending)}
    delta = BatchDelta(INFO, changelogs, {}, space)
    value = bytes(65 << 20)
    changelogs["plain"].append(b"small", b"v", TaskRecordContext())
    changelogs["plain"].append(b"huge", value, TaskRecordContext())
    if spilled:
        delta.spill()
    finished = delta.finish()
    content = (
        finished.content if isinstance(finished.content, pa.Buffer) else pa.py_buffer(finished.content.read_bytes())
    )
    assert content.size < len(value) // 200
    assert [(key, found) for key, found, *_ in records_of(Delta(content, "huge"))["plain"]] == [
        (b"small", b"v"),
        (b"huge", value),
    ]
    delta.close()
