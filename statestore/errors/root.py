"""The root of the error tree, and how an error is declared: by its fields, and the text that they are put into.

    class RunFencedError(LocationError):
        run: str
        problem: str = text("was taken over from run {run}")

    RunFencedError("s3://bucket/state", run="a1")

A field is an argument, by keyword where it does not say otherwise. A text is none: it is made of the fields, and is one
itself. Where a field takes words that depend on its value, a property has them, and the text names that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Say nothing: what it says is for type checkers."""
        return lambda made: made


_TEMPLATE = "template"


def text(template: str, *, init: Literal[False] = False) -> Any:
    """Return a field that is `template`, with other fields, and properties, in braces."""
    return field(init=init, metadata={_TEMPLATE: template})


@dataclass_transform(kw_only_default=True, field_specifiers=(field, text))
@dataclass(eq=False, repr=False)
class StateStoreError(Exception):
    """The root of every error that statestore raises on purpose. Pickles with all its fields."""

    message: str

    _templates: ClassVar[dict[str, str]] = {}
    """Of the fields that are made of others, those of subclasses first: what they make, the others may be made of."""

    def __init_subclass__(cls) -> None:
        own = {name: getattr(vars(cls).get(name), "metadata", {}) for name in get_annotations(cls)}
        inherited = {name: template for name, template in cls._templates.items() if name not in own}
        cls._templates = {name: known[_TEMPLATE] for name, known in own.items() if _TEMPLATE in known} | inherited
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for name, template in self._templates.items():
            setattr(self, name, template.format_map(_Named(self)))
        self.args = (self.message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return error_with, (type(self), self.args, self.__dict__)


class _Named:
    """What a template may name of an error."""

    def __init__(self, error: StateStoreError) -> None:
        self._error = error

    def __getitem__(self, name: str) -> Any:
        return getattr(self._error, name)


def error_with(kind: type[StateStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> StateStoreError:
    """Make an error as it was: its message is already built, and its __init__ would build it again."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error
