"""Commands that show what there is, and change nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from upgrade_tools.cli import options as o
from upgrade_tools.delta_listing import print_delta
from upgrade_tools.documents import Document, entry_documents
from upgrade_tools.kinds import Kind
from upgrade_tools.states import OpenStore, State


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = "Look"
    app.command("scan", rich_help_panel=group)(scan)
    app.command("inspect-delta", rich_help_panel=group)(inspect_delta)


def scan(
    where: o.Where,
    store: o.StoreOption = None,
    kind: o.KindOption = None,
    window_size_ms: o.WindowSizeOption = None,
    subtopology: o.SubtopologyOption = None,
    application_id: o.ApplicationIdOption = None,
    pointers: o.PointersOption = None,
    checkpoint: o.CheckpointOption = None,
    work_dir: o.WorkDirOption = None,
    as_json: o.JsonOption = False,
) -> None:
    """Print the entries of a store.

    With --json it is one document: kind, store, and entries with keys, values and header values in hex.
    """
    state = o.state_at(
        where,
        store=store,
        kind=kind,
        window_size_ms=window_size_ms,
        subtopology=subtopology,
        application_id=application_id,
        pointers=pointers,
        checkpoint=checkpoint,
        work_dir=work_dir,
    )
    spec = state.the_spec()
    head: Document = {"kind": Kind.of(spec).value, "store": spec.name}
    if len(state.parts) == 1:
        with state.open(state.parts[0], [spec]) as stores:
            head.update(_offsets(stores[spec.name]))
    _write_document(head, _entries(state))


def _offsets(store: OpenStore) -> Document:
    position = {
        topic: {str(partition): offset for partition, offset in sorted(offsets.items())}
        for topic, offsets in sorted(store.position.items())
    }
    return {"committedOffset": store.changelog_offset, "position": position}


def _entries(state: State) -> Iterator[Document]:
    spec = state.the_spec()
    for part in state.parts:
        with state.open(part, [spec]) as stores:
            yield from entry_documents(stores[spec.name])


def _write_document(head: Document, entries: Iterator[Document]) -> None:
    """Write a document entry by entry: it need not fit into memory."""
    write = sys.stdout.write
    write(json.dumps(head, ensure_ascii=False).removesuffix("}") + ', "entries": [')
    separator = "\n"
    for entry in entries:
        write(separator + json.dumps(entry, ensure_ascii=False))
        separator = ",\n"
    write("\n]}\n")


def inspect_delta(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Paths or URIs of delta files.")],
    limit: Annotated[int, typer.Option(min=0, help="Records shown of each file, 0 for all.")] = 20,
) -> None:
    """Print what delta files hold: the version that they make, and their records."""
    for file in files:
        print_delta(file, limit)
