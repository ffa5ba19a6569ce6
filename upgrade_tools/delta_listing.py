"""Looks into the files of a state location."""

from __future__ import annotations

from statestore.errors import DurableFileMissingError
from statestore.recovery.delta import Delta, decode_delta
from statestore.recovery.location import DurableLocation
from upgrade_tools.byte_text import shown
from upgrade_tools.entry_lines import printable


def print_delta(file: str, limit: int) -> bool:
    """Print what the delta at path or URI `file` holds, `limit` records of it (0: all); return True.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    directory, _, name = file.rpartition("/")
    delta = _read(DurableLocation(directory or "."), name)
    table = delta.table
    info = delta.info
    print(f"{file}: state {info.state_id}, shard {info.shard}, makes version {info.version}, {table.num_rows} records")
    listed = table if limit == 0 else table.slice(0, limit)
    for record in listed.to_pylist():
        headers = "  ".join(f"{printable(header['key'])}={shown(header['value'])}" for header in record["headers"])
        value = "tombstone" if record["value"] is None else shown(record["value"])
        line = f"{record['store']}  {shown(record['key'])} -> {value}  timestamp {record['timestamp']}  {headers}"
        print(f"  {line.rstrip()}")
    if listed.num_rows < table.num_rows:
        print(f"  ... and {table.num_rows - listed.num_rows} more; --limit 0 shows all")
    return True


def _read(location: DurableLocation, name: str) -> Delta:
    data = location.read(name)
    if data is None:
        raise DurableFileMissingError(location.path(name), needed_by="this command")
    return decode_delta(data, location.path(name))
