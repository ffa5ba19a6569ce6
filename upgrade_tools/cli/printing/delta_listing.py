"""Delta files as lines for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statestore.format.byte_text import text_of
from statestore.recovery.commit.delta import Delta
from upgrade_tools.cli.printing.entry_documents import headers_document
from upgrade_tools.cli.printing.entry_output import headers_text


def delta_lines(file: str, delta: Delta, limit: int) -> Iterator[str]:
    """Yield what a delta holds in lines for people, `limit` records of it (0: all)."""
    info = delta.info
    records, listed = _listed(delta, limit)
    yield f"{file}: state {info.state_id}, shard {info.shard}, makes version {info.version}, {records} records"
    for record in listed:
        headers = headers_text(record["header_bytes"])
        value = "tombstone" if record["value"] is None else text_of(record["value"])
        line = f"{record['store']}  {text_of(record['key'])} -> {value}  timestamp {record['timestamp']}  {headers}"
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
                "headers": headers_document(record["header_bytes"]),
            }
            for record in listed
        ],
    }


def _listed(delta: Delta, limit: int) -> tuple[int, list[dict[str, Any]]]:
    """Return how many records there are, and the first ones."""
    records, listed = 0, list[dict[str, Any]]()
    for _, batch in delta.batches():
        records += batch.num_rows
        listed += (batch if limit == 0 else batch.slice(0, limit - len(listed))).to_pylist()
    return records, listed


def _hex(content: bytes | None) -> str | None:
    return None if content is None else content.hex()
