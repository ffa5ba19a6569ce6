"""Errors travel between processes whole, and say what they know."""

import inspect
import pickle

import pytest

from statestore import errors


def every_error() -> list[type[errors.StateStoreError]]:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, errors.StateStoreError)]


def made(kind: type[errors.StateStoreError]) -> errors.StateStoreError:
    if kind.__init__ is Exception.__init__:
        return kind("message")
    parameters = list(inspect.signature(kind).parameters.values())
    values = {"int": 7, "int | None": None, "list[str]": ["x", "y"], "BaseException": OSError("why")}
    arguments = [values.get(str(p.annotation), "text") for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: values.get(str(p.annotation), "text") for p in parameters if p.kind is p.KEYWORD_ONLY}
    return kind(*arguments, **named)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_message_and_fields(kind: type[errors.StateStoreError]) -> None:
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert {name: str(value) for name, value in vars(again).items()} == {
        name: str(value) for name, value in vars(error).items()
    }


def test_the_tree_in_the_docstring_lists_every_error() -> None:
    assert errors.__doc__ is not None
    for kind in every_error():
        assert kind.__name__ in errors.__doc__
