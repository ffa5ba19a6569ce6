"""`export`: who has the file in the end, and what is said of what was read."""

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main
from upgrade_tools.errors import RowFileExistsError
from upgrade_tools.rows.files import FileFormat, RowFileHead, read_rows, write_rows
from upgrade_tools.rows.rows import ROWS


@pytest.mark.parametrize("file_format", FileFormat)
@pytest.mark.parametrize("links", [True, False], ids=["links", "without links"])
def test_of_two_that_write_one_file_the_first_to_end_has_it(
    file_format: FileFormat, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr("os.link", no_links)
    file, head = tmp_path / "rows", RowFileHead(1, None, ({"name": "s"},))
    late = write_rows(file, file_format, head)
    with write_rows(file, file_format, head) as first:
        first.write(pa.RecordBatch.from_pylist([{"part": 0, "store": "s", "key": b"of the first"}], ROWS))
        late.write(pa.RecordBatch.from_pylist([{"part": 0, "store": "s", "key": b"of the other"}] * 1000, ROWS))
    with pytest.raises(RowFileExistsError), late:
        pass
    assert [batch.column("key").to_pylist() for batch in read_rows(file, file_format)] == [[b"of the first"]]
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_a_store_that_was_not_closed_cleanly_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
    with suppress(KeyboardInterrupt), TaskDirectory(tmp_path / "shop" / "0_0", "shop") as task:
        task.open_store(spec).put(b"k", bytes(9))
        raise KeyboardInterrupt  # what an exception leaves does not count as closed
    assert main(["export", str(tmp_path / "shop/0_0"), str(tmp_path / "rows.jsonl"), "--json"]) == 0
    (note,) = document_in(capsys.readouterr().out)["notes"]
    assert "store totals of part 0 was not closed cleanly" in note
    assert main(["export", str(tmp_path / "shop/0_0"), str(tmp_path / "again.jsonl")]) == 0
    assert f"note: {note}" in capsys.readouterr().err


def test_partitions_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
    for partition in (0, 3):
        with TaskDirectory(tmp_path / "shop" / f"0_{partition}", "shop", partition) as task:
            task.open_store(spec).put(b"k", bytes(9))
    assert main(["export", str(tmp_path / "shop"), str(tmp_path / "rows.jsonl")]) == 0
    assert "note: there is nothing here of the parts [1, 2]" in capsys.readouterr().err
