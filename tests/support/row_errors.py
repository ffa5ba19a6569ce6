"""What an error says of a row of a column."""

from __future__ import annotations

from statestore.errors import FormatError


def check_row_named(found: FormatError, row: int, of_value: FormatError) -> None:
    """Check that an error of a column is that of one of its values, with the row."""
    assert type(found) is type(of_value)
    named = {"what": f"row {row}: {of_value.what}", "message": f"row {row}: {of_value.message}"}
    assert vars(found) == {**vars(of_value), **named}
