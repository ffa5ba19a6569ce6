"""The application: its groups of commands, and how each command ends. A command is a function of its group's module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from statestore.errors import StateStoreError
from upgrade_tools.cli import changelogs, checking, exchange, locations, looking, moving, serving
from upgrade_tools.cli.exit_codes import ExitCode, exit_code_of
from upgrade_tools.cli.printing.output import errors, printable, results, say

_HELP = """
Look into state, check it, and move it: between Kafka Streams and Spark, and from legacy formats to headers.

DIR is a task directory of Kafka Streams (STATE_DIR/APPLICATION_ID/0_0), the directory of an application, or a shard's
local copy; LOCATION is the path or URI of a state location. Commands that read change nothing.

Begin with [bold]inspect[/bold], which says what is there.
"""
_PARAMETERS: Final = ("trust_keys", "work_dir")
"""Parameters that errors of the library name, and that are options here."""
_EPILOG = (
    "Exit codes: 0 done · 1 problems or differences were found · 2 wrong usage, or an option is missing that the "
    "message names · 3 in use · 4 unknown layout, or another kind of store than was given · 5 damaged · 6 no access · "
    "130 interrupted"
)

app = typer.Typer(
    name="upgrade-tools",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Of the click inside typer, which is not the package click.
_UsageError: Any = typer.BadParameter.__bases__[0]


def _show_version(asked: bool) -> None:
    if asked:
        say(results(), f"upgrade-tools of statestore {version('statestore')}")
        raise typer.Exit


@app.callback()
def _options(
    asked: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


for group in (looking, serving, checking, moving, exchange, locations, changelogs):
    group.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of `arguments` or else of the command line; return its exit code, an `ExitCode`.

    Runs without typer's standalone mode, to show errors itself: a StateStoreError or an OSError is one line on stderr.
    """
    try:
        ended = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except StateStoreError as error:
        _show(error)
        return exit_code_of(error)
    except BrokenPipeError:
        raise  # the reader has gone
    except OSError as error:
        _show(error)
        return ExitCode.NO_ACCESS
    except _UsageError as error:
        error.show()
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        errors().print("interrupted")
        return ExitCode.INTERRUPTED
    return int(ended) if isinstance(ended, int) else ExitCode.OK


def _show(error: Exception) -> None:
    message = f"{error}{_options_of(str(error))}"
    errors().print(f"[bold red]error:[/bold red] {escape(printable(message))}", soft_wrap=True)


def _options_of(message: str) -> str:
    """Return the options for parameters that a message of the library names."""
    named = [parameter for parameter in _PARAMETERS if re.search(rf"\b{parameter}\b", message)]
    listed = ", ".join(f"{parameter} is --{parameter.replace('_', '-')}" for parameter in named)
    return f" ({listed})" if listed else ""
