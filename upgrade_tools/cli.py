"""The command line of the offline tools.

inspect-delta FILE...      what a delta file holds: its version, and its records
verify LOCATION            read the files of a state location, and name those that can't be used
gc LOCATION                list what no retained version needs, and remove it if asked to
rescale FROM TO            make a state with another number of shards, and check it entry by entry
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from statestore.errors import StateStoreError
from statestore.recovery.options import DEFAULT_RETAINED_VERSIONS
from statestore.recovery.pointer import CommitPointer
from upgrade_tools.garbage import collect_location
from upgrade_tools.inspect import print_delta
from upgrade_tools.pointers_file import read_pointers_file
from upgrade_tools.rescale import rescale_location
from upgrade_tools.verify import verify_location

_POINTERS = "what `python -m statestore.spark pointers CHECKPOINT` prints; - is stdin"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0 if all is well, 1 if something is damaged or missing, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m upgrade_tools", description="Offline tools for statestore's state."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect-delta", help="print what delta files hold")
    inspect.add_argument("files", nargs="+", metavar="FILE", help="path or URI of a delta file")
    inspect.add_argument("--limit", type=int, default=20, help="records shown of each file, 0 for all (default: 20)")
    inspect.set_defaults(run=lambda chosen: all([print_delta(file, chosen.limit) for file in chosen.files]))
    _add_verify(commands.add_parser("verify", help="read the files of a state location"))
    _add_gc(commands.add_parser("gc", help="list what no retained version needs, and remove it if asked to"))
    _add_rescale(commands.add_parser("rescale", help="make a state with another number of shards"))
    chosen = parser.parse_args(arguments)
    try:
        return 0 if chosen.run(chosen) else 1
    except StateStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("location", metavar="LOCATION", help="path or URI of the state location")
    verify.add_argument("--pointers", metavar="FILE", help=f"check all that they need against checksums: {_POINTERS}")
    verify.set_defaults(run=lambda chosen: verify_location(chosen.location, _pointers(chosen)))


def _add_gc(gc: argparse.ArgumentParser) -> None:
    gc.add_argument("location", metavar="LOCATION", help="path or URI of the state location; the query may run")
    gc.add_argument("--pointers", required=True, metavar="FILE", help=_POINTERS)
    gc.add_argument(
        "--retained-versions",
        type=_at_least_one,
        default=DEFAULT_RETAINED_VERSIONS,
        metavar="N",
        help="how many versions before the last one stay, or more if the query has recorded that it retains more "
        "(default: %(default)s, as Spark's minBatchesToRetain)",
    )
    gc.add_argument("--remove", action="store_true", help="remove what is listed")
    gc.set_defaults(
        run=lambda chosen: collect_location(
            chosen.location,
            read_pointers_file(chosen.location, chosen.pointers),
            retained_versions=chosen.retained_versions,
            remove=chosen.remove,
        )
    )


def _pointers(chosen: argparse.Namespace) -> list[CommitPointer] | None:
    return None if chosen.pointers is None else read_pointers_file(chosen.location, chosen.pointers)


def _add_rescale(rescale: argparse.ArgumentParser) -> None:
    rescale.add_argument("source", metavar="FROM", help="path or URI of the state location; it is not changed")
    rescale.add_argument("target", metavar="TO", help="path or URI of an empty location")
    rescale.add_argument("--shards", type=_at_least_one, required=True, metavar="M", help="the new number of shards")
    rescale.add_argument("--pointers", required=True, metavar="FILE", help=_POINTERS)
    rescale.add_argument("--work-dir", metavar="DIRECTORY", help="has room for one shard (default: a temporary one)")
    rescale.add_argument(
        "--trust-keys", action="store_true", help="believe that the keys of stores are those of records (one old shard)"
    )
    rescale.add_argument("--dry-run", action="store_true", help="check where all belongs, and write nothing")
    rescale.set_defaults(
        run=lambda chosen: rescale_location(
            chosen.source,
            chosen.target,
            shards=chosen.shards,
            pointers_file=chosen.pointers,
            work_dir=chosen.work_dir,
            trust_keys=chosen.trust_keys,
            dry_run=chosen.dry_run,
        )
    )
