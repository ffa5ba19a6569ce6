"""Looks into the files of a state location."""

from __future__ import annotations

from typing import Any

from statestore.errors import DurableFileMissingError
from statestore.recovery.delta import Delta, decode_delta
from statestore.recovery.location import DurableLocation

_SHOWN_BYTES = 40


def print_delta(file: str, limit: int) -> bool:
    """Print what the delta at path or URI `file` holds, `limit` records of it (0: all); return True.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    directory, _, name = file.rpartition("/")
    delta = _read(DurableLocation(directory or "."), name)
    table = delta.table
    info = delta.info
    print(f"{file}: state {info.state_id}, shard {info.shard}, makes version {info.version}, {table.num_rows} records")
    shown = table if limit == 0 else table.slice(0, limit)
    for record in shown.to_pylist():
        headers = "  ".join(f"{header['key']}={_shown(header['value'])}" for header in record["headers"])
        value = "tombstone" if record["value"] is None else _shown(record["value"])
        line = f"{record['store']}  {_shown(record['key'])} -> {value}  timestamp {record['timestamp']}  {headers}"
        print(f"  {line.rstrip()}")
    if shown.num_rows < table.num_rows:
        print(f"  ... and {table.num_rows - shown.num_rows} more; --limit 0 shows all")
    return True


def _read(location: DurableLocation, name: str) -> Delta:
    data = location.read(name)
    if data is None:
        raise DurableFileMissingError(location.path(name), needed_by="this command")
    return decode_delta(data, location.path(name))


def _shown(content: Any) -> str:
    """Return bytes as text if they are printable UTF-8, else as hex; long ones are cut."""
    if content is None:
        return "null"
    cut = content[:_SHOWN_BYTES]
    more = "..." if len(content) > _SHOWN_BYTES else ""
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        return f"0x{cut.hex()}{more}"
    return f"{text}{more}" if text.isprintable() else f"0x{cut.hex()}{more}"
