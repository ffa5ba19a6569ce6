"""Commands that read everything, and say what is wrong or different."""

from __future__ import annotations

import typer

from upgrade_tools.cli import options as o
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.location_check import verify_location


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("verify", rich_help_panel="Check")(verify)


def verify(where: o.Where, pointers: o.PointersOption = None, checkpoint: o.CheckpointOption = None) -> int:
    """Read the files of a state location, and name those that can't be used."""
    whole = verify_location(where, o.read_pointers(where, pointers, checkpoint))
    return ExitCode.OK if whole else ExitCode.FOUND_PROBLEMS
