"""Looks into the files of a state location."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statestore.errors import DurableFileMissingError
from statestore.format.header_bytes import decode_headers
from statestore.recovery.commit.delta import Delta, decode_delta
from statestore.recovery.location import DurableLocation
from upgrade_tools.cli.entry_lines import printable
from upgrade_tools.rows.byte_text import shown


def read_delta(file: str) -> Delta:
    """Return the delta at path or URI `file`. Raises DurableFileMissingError, DurableFileCorruptedError."""
    directory, slash, name = file.rpartition("/")
    location = DurableLocation(directory or slash or ".")
    data = location.read(name)
    if data is None:
        raise DurableFileMissingError(location.path(name), needed_by="this command")
    return decode_delta(data, location.path(name))


def delta_lines(file: str, delta: Delta, limit: int) -> Iterator[str]:
    """Yield what a delta holds in lines for people, `limit` records of it (0: all)."""
    info = delta.info
    records, listed = _listed(delta, limit)
    yield f"{file}: state {info.state_id}, shard {info.shard}, makes version {info.version}, {records} records"
    for record in listed:
        headers = "  ".join(f"{printable(key)}={shown(value)}" for key, value in decode_headers(record["header_bytes"]))
        value = "tombstone" if record["value"] is None else shown(record["value"])
        line = f"{record['store']}  {shown(record['key'])} -> {value}  timestamp {record['timestamp']}  {headers}"
        yield f"  {line.rstrip()}"
    if len(listed) < records:
        yield f"  ... and {records - len(listed)} more; --limit 0 shows all"


def delta_document(file: str, delta: Delta, limit: int) -> dict[str, Any]:
    """Return what a delta holds as `inspect-delta --json` prints it, `limit` records of it (0: all)."""
    info = delta.info
    records, listed = _listed(delta, limit)
    return {
        "path": file,
        "stateId": info.state_id,
        "shard": info.shard,
        "version": info.version,
        "recordCount": records,
        "records": [
            {
                "store": record["store"],
                "key": record["key"].hex(),
                "value": _hex(record["value"]),
                "timestamp": record["timestamp"],
                "headers": [[key, _hex(value)] for key, value in decode_headers(record["header_bytes"])],
            }
            for record in listed
        ],
    }


def _listed(delta: Delta, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """Return how many records there are, and the first ones; reading them all takes the file apart once."""
    table = delta.table
    return table.num_rows, (table if limit == 0 else table.slice(0, limit)).to_pylist()


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()
