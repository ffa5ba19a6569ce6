"""The command line of the offline tools: `main` runs one command."""

from upgrade_tools.cli.app import main

__all__ = ["main"]
