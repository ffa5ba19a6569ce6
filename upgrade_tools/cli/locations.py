"""Commands for state locations, in which queries keep their state."""

from __future__ import annotations

from typing import Annotated

import typer

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import refuse_occupied
from statestore.recovery.snapshots.options import DEFAULT_RETAINED_VERSIONS
from upgrade_tools.cli import options as o
from upgrade_tools.cli.option_groups import add_command
from upgrade_tools.cli.printing.documents import garbage_document, rescale_document
from upgrade_tools.cli.printing.output import errors, print_json, results, say
from upgrade_tools.location.garbage import collect_location
from upgrade_tools.location.rescale import rescale_location
from upgrade_tools.states.location import LocationState, metadata_at
from upgrade_tools.states.state import StateOptions

Location = Annotated[str, typer.Argument(help="Path or URI of a state location.", callback=o.not_empty)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, "gc", "State locations", gc)
    add_command(app, "rescale", "State locations", rescale)


def gc(
    location: Location,
    committed: o.CommittedGroup,
    retained_versions: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many versions to keep before the last one; more if the query itself retains more.",
        ),
    ] = DEFAULT_RETAINED_VERSIONS,
    remove: Annotated[bool, typer.Option("--remove", help="Remove what is listed.")] = False,
    as_json: o.JsonOption = False,
) -> None:
    """List the files that no retained version needs, and why; --remove deletes them. The query may be running."""
    console = results()
    found = collect_location(
        location,
        _pointers(location, committed),
        retained_versions=retained_versions,
        remove=remove,
        on_file=None if as_json else lambda file: say(console, f"{file.size_bytes:>12}  {file.name}  {file.reason}"),
    )
    if as_json:
        print_json(garbage_document(location, found, removed=remove))
        return
    size_mb = sum(file.size_bytes for file in found) / 1e6
    what = "removed" if remove else "can be removed; nothing was, give --remove for that"
    say(console, f"{len(found)} files, {size_mb:.1f} MB {what}")


def rescale(
    source: o.From,
    target: o.To,
    shards: Annotated[int, typer.Option(min=1, help="The new number of shards.")],
    committed: o.CommittedGroup,
    work_dir: o.WorkDirOption = None,
    trust_keys: o.TrustKeysOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check where all entries belong, and write nothing.")
    ] = False,
    as_json: o.JsonOption = False,
) -> None:
    """Make a state with another number of shards, and check it entry by entry."""
    if not dry_run:
        refuse_occupied(DurableLocation(target))
    report = rescale_location(
        source,
        target,
        shards=shards,
        recorded=_pointers(source, committed),
        work_dir=work_dir,
        trust_keys=trust_keys,
        dry_run=dry_run,
        on_progress=lambda now: say(errors(), f"  {now}"),
    )
    if as_json:
        print_json(rescale_document(source, target, report))
    else:
        for line in str(report).splitlines():
            say(results(), line)


def _pointers(location: str, committed: o.CommittedGroup) -> list[CommitPointer]:
    """Return the commit pointers that options name, or those of a state that a tool made and no query has started on.

    Raises StatePointersError, UnknownLayoutError.
    """
    found = committed.read(location)
    if found is not None:
        return found
    state = DurableLocation(location)
    return LocationState(state, metadata_at(state), StateOptions()).pointers
