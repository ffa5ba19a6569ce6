"""`python -m upgrade_tools`, or `upgrade-tools`: the command line, which is in `cli`."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line; without its libraries, say how they are installed and return 2."""
    try:
        from upgrade_tools.cli.app import main
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        print(f"the command line needs {missing.name}: pip install 'statestore[tools]'", file=sys.stderr)
        return 2
    return main()


if __name__ == "__main__":
    sys.exit(run())
