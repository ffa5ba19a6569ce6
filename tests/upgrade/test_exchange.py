"""`export` and `import`: what a file of rows holds is the state that it is of, and becomes it again."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from statestore import Serdes
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.dsl import EmitStrategy, Materialized, StreamsBuilder, TimeWindows
from statestore.format.keys.due_key import window_end_key
from statestore.format.keys.window_key import encode_session_key, encode_window_key, split_session_key, split_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.golden.kafka_streams import FIXTURES, load_fixture
from tests.support.golden.state import HEADERS
from tests.support.recovery.expired_versions import VERSIONS, put_versions
from tests.support.recovery.rescaling import KEYS, States, every_kind
from tests.support.tools.runs import Tools, document_in
from upgrade_tools.cli.app import main
from upgrade_tools.errors import RowFileExistsError
from upgrade_tools.rows import files as row_files
from upgrade_tools.rows.files import FileFormat, RowFileHead, read_rows, write_rows
from upgrade_tools.rows.rows import ROWS
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import State, StateOptions

FORMATS = ("parquet", "jsonl")
INTERVAL_MS, WINDOW_MS = 60_000, 10_000


def writes_of(state: State) -> list[tuple[int, str, LogicalWrite]]:
    """Return all that is in a state."""
    found = []
    for part in state.parts:
        specs = state.specs()
        with state.open(part, specs) as stores:
            for spec in specs:
                store = stores[spec.name]
                steps = logical_writes(spec, store.bytes, store.stream_time_ms)
                found.extend((part, spec.name, write) for step in steps for write in step)
    return found


def exported(states: States, name: str, *more: str) -> Path:
    """Export the state into a file of its home."""
    file = states.home / name
    assert main(["export", str(states.home / "old"), str(file), "--pointers", f"{states.home}/pointers", *more]) == 0
    return file


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("name", FIXTURES)
def test_every_golden_directory_comes_back(name: str, file_format: str, tmp_path: Path) -> None:
    fixture = load_fixture(name).fixture
    task = load_fixture(name).unpack(tmp_path)
    file, made = tmp_path / f"rows.{file_format}", tmp_path / "made"
    kind = ["--kind", fixture["kind"], "--window-size-ms", str(fixture["windowSizeMs"])]
    assert main(["export", str(task), str(file), *kind]) == 0
    retention_ms = fixture["historyRetentionMs"] if "versioned" in name else fixture["retentionMs"]
    assert main(["import", str(file), str(made), "--retention-ms", str(retention_ms)]) == 0
    options = StateOptions(kind=StoreType(fixture["kind"]), window_size_ms=fixture["windowSizeMs"])
    expected = writes_of(open_state(str(task), options))
    assert len(expected) >= 2
    assert sorted(writes_of(open_state(str(made))), key=repr) == sorted(expected, key=repr)


@pytest.fixture
def with_expired(tmp_path: Path) -> Path:
    """An application's directory, as Kafka Streams leaves it: what expires goes with the next write only."""
    windows = StoreSpec("windows", StoreKind.WINDOW, StoreFormat.PLAIN, 10 * INTERVAL_MS, INTERVAL_MS, WINDOW_MS)
    sessions = StoreSpec("sessions", StoreKind.SESSION, StoreFormat.PLAIN, 10 * INTERVAL_MS, INTERVAL_MS)
    history = StoreSpec("versions", StoreKind.VERSIONED, StoreFormat.PLAIN, 10 * INTERVAL_MS, INTERVAL_MS)
    with TaskDirectory(tmp_path / "shop" / "0_0", "shop") as task:
        of_windows, of_sessions = task.open_store(windows), task.open_store(sessions)
        for segment_id in range(5):
            time_ms = segment_id * INTERVAL_MS
            of_windows.put(segment_prefix(segment_id) + encode_window_key(b"k", time_ms), b"w")
            of_sessions.put(segment_prefix(segment_id) + encode_session_key(b"k", 0, time_ms), b"s")
        put_versions(task.open_store(history), history)
    return tmp_path / "shop" / "0_0"


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("placed", [[], ["--shards", "3"]])
def test_what_has_expired_is_left_out(
    with_expired: Path, file_format: str, placed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = {}
    for store, kind in (("windows", "window"), ("sessions", "session"), ("versions", "versioned")):
        file, made = tmp_path / f"{store}.{file_format}", tmp_path / store
        of_store = ["--store", store, "--kind", kind, "--retention-ms", str(2 * INTERVAL_MS)]
        if kind == "window":
            of_store += ["--window-size-ms", str(WINDOW_MS)]
        assert main(["export", str(with_expired), str(file), *of_store]) == 0
        capsys.readouterr()
        assert main(["import", str(file), str(made), *placed, "--json"]) == 0
        left[store] = document_in(capsys.readouterr().out)["expired"]
    expected = [2 * INTERVAL_MS, 3 * INTERVAL_MS, 4 * INTERVAL_MS]
    windows = [split_window_key(write.key)[1] for _, _, write in writes_of(open_state(str(tmp_path / "windows")))]
    sessions = [split_session_key(write.key)[2] for _, _, write in writes_of(open_state(str(tmp_path / "sessions")))]
    assert (sorted(windows), sorted(sessions)) == (expected, expected)
    found = {(w.key, w.stored, w.timestamp_ms) for _, _, w in writes_of(open_state(str(tmp_path / "versions")))}
    if not placed:
        assert found == {*VERSIONS[3:]}
        assert left == {"windows": 2, "sessions": 2, "versions": 3}
    else:
        # A shard knows the latest time of its own keys only.
        assert found >= {*VERSIONS[3:]}
        assert (left["windows"], left["sessions"]) == (2, 2)


@pytest.mark.parametrize("file_format", FORMATS)
def test_versions_that_go_on_in_the_next_batch(
    with_expired: Path, file_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "DEFAULT_ROWS", 1)
    file = tmp_path / f"rows.{file_format}"
    of_store = ["--store", "versions", "--kind", "versioned", "--retention-ms", str(2 * INTERVAL_MS)]
    assert main(["export", str(with_expired), str(file), *of_store]) == 0
    assert main(["import", str(file), str(tmp_path / "made")]) == 0
    assert {write[0] for _, _, write in writes_of(open_state(str(tmp_path / "made")))} == {b"j", b"k"}


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_state_location_comes_back_shard_by_shard(states: States, file_format: str) -> None:
    file = exported(states, f"rows.{file_format}")
    assert main(["import", str(file), str(states.home / "new")]) == 0
    metadata = read_metadata(DurableLocation(states.home / "new"))
    assert metadata is not None
    assert (metadata.shards, metadata.shard_by, metadata.topology) == (3, "key", ())
    assert sorted(metadata.stores, key=str) == sorted(states.metadata.stores, key=str)
    assert states.opened().contents() == states.contents()


def test_rows_say_what_an_entry_is(states: States) -> None:
    rows = pq.read_table(exported(states, "rows.parquet"))
    assert rows.schema.remove_metadata() == ROWS
    key = KEYS[3]
    found = {row["store"]: row for row in rows.to_pylist() if row["key"] == key.encode()}
    time_ms = 53
    assert found["headed"]["timestamp_ms"] == time_ms
    assert [header["key"] for header in found["headed"]["headers"]] == [key for key, _ in HEADERS]
    assert (found["sessions"]["start_ms"], found["sessions"]["end_ms"]) == (time_ms - 10, time_ms)
    assert found["windows"]["start_ms"] == time_ms
    versions = [row for row in rows.to_pylist() if row["store"] == "versions" and row["key"] == key.encode()]
    assert [(row["start_ms"], row["value"]) for row in versions] == [
        (time_ms, b"from 53"),
        (time_ms + 3, None),
        (time_ms + 8, b"again"),
    ]


def test_one_store_of_many_is_placed_by_key_among_new_shards(states: States) -> None:
    file = exported(states, "headed.jsonl", "--store", "headed")
    assert main(["import", str(file), str(states.home / "new"), "--shards", "5"]) == 0
    made = open_state(str(states.home / "new"))
    assert made.parts == (0, 1, 2, 3, 4)
    found = writes_of(made)
    expected = writes_of(
        open_state(str(states.home / "old"), StateOptions("headed", pointers=list(states.pointers.values())))
    )
    assert {write for _, _, write in found} == {write for _, _, write in expected}
    five = States(states.home, every_kind(), 5, name="other")
    assert {part for part, _, _ in found} == {five.shard_of(key) for key in KEYS}
    assert all(part == five.shard_of(write.key.decode()) for part, _, write in found)


@pytest.mark.parametrize("shards", [1, 3])
def test_each_shard_gets_all_of_a_global_store(tmp_path: Path, shards: int, tools: Tools) -> None:
    states = States(tmp_path, every_kind(), shards)
    rates = {f"rate-{number}".encode() for number in range(9)}
    for rate in sorted(rates):
        states.put_globally(rate.decode(), "1")
    states.write_pointers()
    file, made = exported(states, "rows.jsonl", "--store", "rates"), states.home / "new"
    assert tools("import", file, made, "--shards", "4").code == 0
    found = writes_of(open_state(str(made)))
    assert [{write.key for part, _, write in found if part == shard} for shard in range(4)] == [rates] * 4
    compared = tools("verify", states.home / "old", made, "--pointers", states.home / "pointers", "--store", "rates")
    assert (compared.code, compared.lines[0]) == (0, "rates: 9 entries, the same")


def test_the_ends_of_windows_go_where_these_go(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    texts = builder.stream("in", key_serde=Serdes.string(), value_serde=Serdes.string()).group_by_key()
    closing = texts.windowed_by(TimeWindows.of_size_with_no_grace(10)).emit_strategy(EmitStrategy.on_window_close())
    closing.count(materialized=Materialized.as_("minutes"))
    states = States(tmp_path, builder.build(), 1)
    states.process(0, [("in", 0, number, 5, f"key-{number}".encode(), b"v", b"") for number in range(20)])
    states.write_pointers()
    file = exported(states, "rows.parquet")
    assert main(["import", str(file), str(tmp_path / "new"), "--shards", "3"]) == 0
    found = writes_of(open_state(str(tmp_path / "new")))
    windows = {split_window_key(write.key)[0]: part for part, name, write in found if name == "minutes"}
    ends = {window_end_key(write.key): part for part, name, write in found if name == "minutes-ends"}
    assert (len(windows), ends) == (20, windows)


def test_keys_that_are_not_those_of_records_are_not_placed_by_them(states: States, tools: Tools) -> None:
    states.run(0, lambda stores: [stores["plain"].put(key, "v") for key in ("x", "y", "z")])
    states.write_pointers()
    refused = tools("import", exported(states, "rows.jsonl"), states.home / "new", "--shards", "2")
    assert (refused.code, read_metadata(DurableLocation(states.home / "new"))) == (5, None)
    assert "store 'plain' has keys in part 0 where records with them do not go" in refused.err


def test_a_file_is_there_once_it_is_whole(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    next((states.home / "old" / "shards" / "0002" / "deltas").glob("*.arrow")).unlink()
    file = states.home / "rows.jsonl"
    assert main(["export", str(states.home / "old"), str(file), "--pointers", f"{states.home}/pointers"]) == 5
    assert "is missing" in capsys.readouterr().err
    assert not list(states.home.glob("rows.*"))


def test_results_as_json(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported(states, "rows.parquet", "--store", "headed", "--json")
    assert document_in(capsys.readouterr().out) == {
        "path": str(file),
        "stores": [{"name": "headed", "rows": len(KEYS)}],
        "rows": len(KEYS),
        "parts": 3,
        "stateId": None,
        "expired": 0,
        "notes": [],
    }
    assert main(["import", str(file), str(states.home / "new"), "--json"]) == 0
    metadata = read_metadata(DurableLocation(states.home / "new"))
    assert metadata is not None
    assert document_in(capsys.readouterr().out)["stateId"] == metadata.state_id


def _lines(change: Callable[[list[str]], None]) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        lines = file.read_text().splitlines()
        change(lines)
        file.write_text("\n".join(lines) + "\n")

    return apply


def _row(**fields: object) -> Callable[[Path], None]:
    def change(lines: list[str]) -> None:
        lines[-1] = json.dumps({**json.loads(lines[-1]), **fields})

    return _lines(change)


def _head(**fields: object) -> Callable[[Path], None]:
    def change(lines: list[str]) -> None:
        lines[0] = json.dumps({**json.loads(lines[0]), **fields})

    return _lines(change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_lines(lambda lines: lines.pop(0)), "does not say what stores it holds"),
        (_lines(lambda lines: lines.append('{"part": 0, "sto')), "line 42 is not a row"),
        (_lines(lambda lines: lines.append("[]")), "line 42 is not a row"),
        (_row(store="other"), "a row is of store 'other'"),
        (_row(part=3), "a row is of part 3, but the file says that it has 3 parts"),
        (_row(part=None), "part None"),
        (_row(key=None), "it has no key"),
        (_row(key="0x"), "line 41 is not a row"),
        (_row(key=7), "line 41 is not a row"),
        (_row(value=None), "only versions have tombstones"),
        (_row(timestamp_ms=None), "it has no timestamp_ms"),
        (_row(timestamp_ms="now"), "a field of another type"),
        (_row(extra=1), "unknown field 'extra'"),
        (_row(headers=[["k"]]), "line 41 is not a row"),
        (_row(headers=[["\ud800", "00"]]), "a field of another type"),
        (_head(parts=9_000_000_000), "9000000000 parts"),
        (_head(shard_by="name"), "unknown shard_by 'name'"),
    ],
)
def test_a_bad_file_makes_no_state(
    states: States, damage: Callable[[Path], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = exported(states, "headed.jsonl", "--store", "headed")
    damage(file)
    capsys.readouterr()
    assert main(["import", str(file), str(states.home / "new")]) == 5
    assert message in " ".join(capsys.readouterr().err.split())
    assert read_metadata(DurableLocation(states.home / "new")) is None


def test_a_foreign_parquet_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"key": [b"k"]}), tmp_path / "other.parquet")
    assert main(["import", str(tmp_path / "other.parquet"), str(tmp_path / "new")]) == 5
    assert "was not made by export" in capsys.readouterr().err
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:-20])
    assert main(["import", str(tmp_path / "cut.parquet"), str(tmp_path / "new")]) == 5
    assert "not a Parquet file, or is cut off" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_damaged_page_makes_no_state(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported(states, "rows.parquet")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(ROWS.get_field_index("value"))
    content = bytearray(file.read_bytes())
    first = chunk.dictionary_page_offset or chunk.data_page_offset
    content[first : first + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    file.write_bytes(content)
    capsys.readouterr()
    assert main(["import", str(file), str(states.home / "new")]) == 5
    assert "it can't be read" in capsys.readouterr().err
    assert read_metadata(DurableLocation(states.home / "new")) is None


def test_a_file_that_is_there_is_not_replaced(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    (states.home / "rows.jsonl").write_text("precious")
    command = ["export", str(states.home / "old"), str(states.home / "rows.jsonl")]
    assert main([*command, "--pointers", f"{states.home}/pointers"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (states.home / "rows.jsonl").read_text() == "precious"
    assert not list(states.home.glob("*.partial"))


def test_a_file_that_was_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    head = RowFileHead(1, None, ())
    with pytest.raises(RowFileExistsError), write_rows(file, FileFormat.PARQUET, head):
        file.write_text("precious")
    assert file.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


@pytest.mark.parametrize("file_format", FileFormat)
def test_large_rows_are_read_and_written_few_at_a_time(file_format: FileFormat, tmp_path: Path) -> None:
    file, large = tmp_path / "rows", 2 << 20
    row = {"part": 0, "store": "s", "value": bytes(large)}
    with write_rows(file, file_format, RowFileHead(1, None, ({"name": "s"},))) as writer:
        for number in range(40):
            writer.write(pa.RecordBatch.from_pylist([{**row, "key": b"%d" % number}], ROWS))
    batches = [(batch.nbytes, batch.column("key").to_pylist()) for batch in read_rows(file, file_format)]
    assert [int(key) for _, keys in batches for key in keys] == list(range(40))
    assert max(size for size, _ in batches) < 5 << 20


def test_each_phase_of_an_import_has_its_bar(
    states: States, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = exported(states, "rows.parquet")
    rows = pq.ParquetFile(file).metadata.num_rows
    monkeypatch.setattr(
        "upgrade_tools.cli.printing.output.errors", lambda: Console(file=sys.stderr, force_terminal=True, width=160)
    )
    assert main(["import", str(file), str(states.home / "new")]) == 0
    shown = capsys.readouterr().err
    assert rows > 0
    assert shown.count(f"{rows}/{rows}") >= 3
    assert all(phase in shown for phase in ("looking for the latest times", "importing", "checking"))


def test_what_the_operating_system_says_of_a_file_is_one_line(
    states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    file = states.home / "[red] :id:" / "rows.jsonl"
    assert main(["export", str(states.home / "old"), str(file), "--pointers", f"{states.home}/pointers"]) == 6
    said = capsys.readouterr().err
    assert said.startswith("error: [Errno 2] No such file or directory")
    assert (f"'{file}'" in said, said.count("\n")) == (True, 1)


def test_two_rows_of_one_key_are_no_state(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported(states, "headed.jsonl", "--store", "headed")
    _lines(lambda lines: lines.append(lines[-1]))(file)
    assert main(["import", str(file), str(states.home / "new")]) == 5
    assert "entries with the same key" in capsys.readouterr().err
    assert read_metadata(DurableLocation(states.home / "new")) is None


def test_what_must_be_said_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = load_fixture("headers-window").unpack(tmp_path)
    assert main(["export", str(task), str(tmp_path / "rows.parquet")]) == 2
    assert "it may be headers-window, headers-window-dup; choose one with --kind" in capsys.readouterr().err
    assert main(["export", str(task), str(tmp_path / "rows.parquet"), "--kind", "headers-window"]) == 2
    assert "give their size with --window-size-ms" in capsys.readouterr().err
    said = ["--kind", "headers-window", "--window-size-ms", "10000"]
    assert main(["export", str(task), str(tmp_path / "rows"), *said]) == 2
    assert "give --format parquet or jsonl" in capsys.readouterr().err
    assert main(["export", str(task), str(tmp_path / "rows.parquet"), *said]) == 0
    assert main(["import", str(tmp_path / "rows.parquet"), str(tmp_path / "new")]) == 2
    assert "give its retention with --retention-ms" in capsys.readouterr().err
