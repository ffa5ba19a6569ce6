"""The ways in which a read can be called: by position, as in Kafka, or by name; with times as ints or as timedeltas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from statestore.stores.supplier import in_milliseconds

_TIME = "_ms"


class ReadForms:
    """What an overloaded method takes: a tuple of names for each form. Names that end with `_ms` are of times."""

    def __init__(self, method: str, *forms: tuple[str, ...]) -> None:
        self._method = method
        self._forms = forms
        self._times = {len(form): tuple(at for at, name in enumerate(form) if name.endswith(_TIME)) for form in forms}
        """Where the times are, by how many arguments there are: no two forms are of equal length."""

    def arguments(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in the order of the form that they fit, times in milliseconds.

        Raises TypeError, naming the forms, if they fit none.
        """
        count = len(given)
        if not named and count in self._times:
            for at in self._times[count]:
                if isinstance(given[at], timedelta):
                    break
            else:
                return given  # most reads
        for form in self._forms:
            if len(form) == count + len(named) and named.keys() == {*form[count:]}:
                found = (*given, *(named[name] for name in form[count:]))
                return tuple(
                    in_milliseconds(argument) if name.endswith(_TIME) else argument
                    for name, argument in zip(form, found, strict=True)
                )
        forms = " or ".join(f"({', '.join(form)})" for form in self._forms)
        got = ", ".join([*("..." for _ in given), *(f"{name}=..." for name in named)])
        raise TypeError(f"{self._method} takes {forms}, got ({got})")
