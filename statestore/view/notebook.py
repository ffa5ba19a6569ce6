"""How a view shows itself in a notebook: what a head tells, so that no shard is opened for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from statestore.bytestore.kinds.store_spec import StoreType
from statestore.recovery.commit.figures import SizeFigures, total
from statestore.recovery.heads.head import Head
from statestore.recovery.metadata.state_metadata import StateMetadata


def state_html(location: str, metadata: StateMetadata, head: Head | None) -> str:
    """Return a state at a batch as HTML: a line, and a table of its stores."""
    committed = "with the pointers that were given" if head is None else f"as of {head.describe()}"
    known = {} if head is None else head.figures.sizes()
    rows = []
    for spec in sorted(metadata.stores, key=lambda spec: spec.name):
        told = known.get(spec.name, {})
        sizes = total(SizeFigures, told.values())
        about = (f"{sizes.entries:,}", f"{sizes.size_bytes:,}", f"{sizes.header_bytes:,}") if told else ("",) * 3
        rows.append((spec.name, StoreType.of(spec).value, *about))
    line = f"{_shown(location)}, {metadata.shards} shards, {committed}"
    columns = ("store", "kind", "entries, about", "bytes, about", "of headers, about")
    return f"<p>{escape(line)}</p>{_table(columns, rows)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_shown(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
