"""One query, one state location: who may write to it.

    owners/QUERY_ID                    the claim of the query that the location belongs to; empty, and never removed
    owners/QUERY_ID.UNIQUE.claiming    one of its processes is about to write that; empty

A query is known by the id that Spark keeps in its checkpoint, so restarts are the same query. A second query finds the
first one's claim and stops before it has written anything else.

Whoever finds no claim says first that it is claiming, and looks again: of two queries that claim a location at the same
moment one must see the other. Each may see the other, and both stop: starting one of them again settles it. A process
withdraws only what it has said itself, so it takes no claim from another one that has looked and found nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from statestore.errors import LocationInUseError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.local_disk import is_partial
from statestore.recovery.location.shard_files import path_part

_DIRECTORY: Final = "owners"
_CLAIMING: Final = ".claiming"
_LOOKS: Final = 2
"""A listing may miss a query in the moment in which it turns what it has said into its claim: the next one has it."""


def claim(location: DurableLocation, query_id: str) -> None:
    """Make the query `query_id` the owner of `location`. Raises LocationInUseError if another one is, or becomes it."""
    mine = f"{_DIRECTORY}/{path_part(query_id)}"
    owners, claiming = _claims(location)
    _refuse_others(location, query_id, owners)
    if query_id in owners:
        # Who is claiming now must find this.
        return
    _refuse_others(location, query_id, claiming)
    claim = f"{mine}.{uuid.uuid4().hex}{_CLAIMING}"
    location.write(claim, b"")
    try:
        for _ in range(_LOOKS):
            _refuse_others(location, query_id, set().union(*_claims(location)))
        location.write(mine, b"")
    finally:
        location.delete(claim)


def _claims(location: DurableLocation) -> tuple[set[str], set[str]]:
    """Return which queries have claimed a location, and which are claiming it."""
    names = [name.removeprefix(f"{_DIRECTORY}/") for name in location.names(_DIRECTORY)]
    # A writer's partial file says nothing yet.
    whole = [name for name in names if not is_partial(name)]
    claiming = {name.removesuffix(_CLAIMING).rpartition(".")[0] for name in whole if name.endswith(_CLAIMING)}
    return {name for name in whole if not name.endswith(_CLAIMING)}, claiming


def _refuse_others(location: DurableLocation, query_id: str, queries: Iterable[str]) -> None:
    for owner in sorted(queries):
        if owner != query_id:
            raise LocationInUseError(str(location), owner=owner, query=query_id)
