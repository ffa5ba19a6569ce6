"""The root of the error tree, and how an error is declared: by its fields, and the text that they are put into.

    class RunFencedError(LocationError):
        run: str
        problem: str = text("was taken over from run {run}")

    RunFencedError("s3://bucket/state", run="a1")

A field is an argument, by keyword unless `field` says otherwise. A text is a field that is made of other
ones. Where its words depend on a value, a property returns them, and the text names the property.
"""

from __future__ import annotations

from inspect import Parameter, Signature, get_annotations, signature
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from statestore.errors.readable import without_secrets

if TYPE_CHECKING:
    from dataclasses import dataclass

    from typing_extensions import dataclass_transform
else:

    def dataclass(**_: Any) -> Any:
        """Return the class as it is: only type checkers need this decorator."""
        return lambda made: made

    dataclass_transform = dataclass


class _Field(NamedTuple):
    annotation: Any
    default: Any = Parameter.empty
    kw_only: bool = True
    template: str | None = None


def field(*, kw_only: Literal[False]) -> Any:
    """Return a field that is also an argument by position."""
    return _Field(None, kw_only=kw_only)


def text(template: str, *, init: Literal[False] = False) -> Any:
    """Return a field that is `template`, with other fields, and properties, in braces. It is not an argument."""
    return _Field(None, template=template)


_PLACES: Final = frozenset({"location", "path", "where"})
"""Fields that may be URIs, as users wrote them: with a secret."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field, text))
@dataclass(eq=False, repr=False)
class StateStoreError(Exception):
    """The root of every error that statestore raises on purpose. Pickles with all its fields."""

    message: str

    _fields: ClassVar[dict[str, _Field]] = {"message": _Field("str", kw_only=False)}
    """By name, those of base classes first. One that a subclass declares again keeps its place."""
    _templates: ClassVar[dict[str, str]] = {}
    """Of the fields that are texts, those of subclasses first: texts of base classes may name them."""
    _arguments: ClassVar[Signature] = Signature([Parameter("message", Parameter.POSITIONAL_OR_KEYWORD)])
    __signature__: ClassVar[Signature] = _arguments

    def __init_subclass__(cls) -> None:
        # Not by `dataclass`, which compiles code for each class: that would take a third of the library's import time.
        own = {name: _declared(cls, name, annotation) for name, annotation in get_annotations(cls).items()}
        cls._fields = {**cls._fields, **own}
        inherited = {name: template for name, template in cls._templates.items() if name not in own}
        cls._templates = {name: known.template for name, known in own.items() if known.template} | inherited
        cls._arguments = _signature(cls._fields)
        cls.__signature__ = cls._arguments if "__init__" not in vars(cls) else signature(MethodType(cls.__init__, cls))

    def __init__(self, *args: Any, **given: Any) -> None:
        arguments = self._arguments.bind(*args, **given)
        arguments.apply_defaults()
        vars(self).update(arguments.arguments)
        self.__post_init__()

    def __post_init__(self) -> None:
        for name in _PLACES.intersection(self._arguments.parameters):
            setattr(self, name, without_secrets(getattr(self, name)))
        for name, template in self._templates.items():
            setattr(self, name, template.format_map(_Named(self)))
        self.args = (self.message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return error_with, (type(self), self.args, self.__dict__)


def _declared(kind: type[StateStoreError], name: str, annotation: Any) -> _Field:
    """Return what a class says of a field, and take it off the class, unless it is a default."""
    found = vars(kind).get(name, Parameter.empty)
    if not isinstance(found, _Field):
        return _Field(annotation, default=found)
    delattr(kind, name)
    return found._replace(annotation=annotation)


def _signature(fields: dict[str, _Field]) -> Signature:
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY if known.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=known.default,
            annotation=known.annotation,
        )
        for name, known in fields.items()
        if known.template is None
    ]
    return Signature(sorted(parameters, key=lambda parameter: parameter.kind))


class _Named:
    """What a template may name of an error."""

    def __init__(self, error: StateStoreError) -> None:
        self._error = error

    def __getitem__(self, name: str) -> Any:
        return getattr(self._error, name)


def error_with(kind: type[StateStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> StateStoreError:
    """Return an error without calling its __init__, which would build its message again."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error
