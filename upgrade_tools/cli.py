"""The command line of the offline tools.

inspect-delta FILE...      what a delta file holds: its version, and its records
verify LOCATION            read every delta file of a state location, and name those that can't be read
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from statestore.errors import StateStoreError
from upgrade_tools.inspect import print_delta, verify_location


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
    verify = commands.add_parser("verify", help="read every delta file of a state location")
    verify.add_argument("location", metavar="LOCATION", help="path or URI of the state location")
    verify.set_defaults(run=lambda chosen: verify_location(chosen.location))
    chosen = parser.parse_args(arguments)
    try:
        return 0 if chosen.run(chosen) else 1
    except StateStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
