"""Options that belong together, as one parameter of a command.

A group is a frozen dataclass below OptionGroup, whose fields are annotated like the parameters of a command. A command
has a parameter of its type, in place of which `add_command` shows the options one by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, get_type_hints

import typer


@dataclass(frozen=True)
class OptionGroup:
    """Options that several commands have together. Each has a default."""

    def chosen(self, *groups: type[OptionGroup]) -> dict[str, Any]:
        """Return the values of all options by name, or only those of `groups`, which this group is made of."""
        return {
            option.name: getattr(self, option.name) for group in groups or (type(self),) for option in fields(group)
        }


def add_command(app: typer.Typer, name: str, panel: str | None, command: Callable[..., Any]) -> None:
    """Add a command to an application, under a heading of its help; None is typer's default."""
    app.command(name, rich_help_panel=panel)(_ungrouped(command))


def _ungrouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes each option of its groups as a parameter."""
    groups: dict[str, type[OptionGroup]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and issubclass(kind, OptionGroup)):
            parameters.append(parameter)
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hints[option.name]
            )
            for option in fields(kind)
        ]

    @wraps(command)
    def ungrouped(**given: Any) -> Any:
        made = {}
        for name, kind in groups.items():
            made[name] = kind(**{option.name: given.pop(option.name) for option in fields(kind)})
        return command(**given, **made)

    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    ungrouped.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    ungrouped.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    del ungrouped.__wrapped__
    return ungrouped
