"""Exit codes: what each means to a script, and which errors end with it."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from statestore.errors import (
    DeserializationError,
    FormatError,
    LocationError,
    LocationInUseError,
    RecoveryError,
    StateStoreError,
    StoreFormatError,
    TargetNotEmptyError,
)
from statestore.errors.new_state import (
    DirectoryDamagedError,
    DirectoryInUseError,
    DirectoryNotAccessibleError,
    StateCheckError,
    StatePointersError,
    TooManyShardsError,
)
from statestore.errors.state import (
    LocalStateCorruptedError,
    LocalStateLockedError,
    LocationMismatchError,
    LocationNotWritableError,
    UnknownColumnFamilyError,
    UnknownEntryError,
)
from upgrade_tools.errors import (
    ApplicationRunningError,
    ChangelogDamagedError,
    ChangelogMissingError,
    KafkaUnavailableError,
    MigrationCheckError,
    MigrationRefusedError,
    NothingExpiresError,
    PointersOutdatedError,
    RowFileError,
    RowFileExistsError,
    StateWentOnError,
    StoreNotFoundError,
    StoreUndecodableError,
    UnknownKindError,
    UnknownLayoutError,
)


class ExitCode(IntEnum):
    """How a command ended. Scripts rely on the numbers: never change one."""

    OK = 0
    """Done; what was compared is the same."""
    FOUND_PROBLEMS = 1
    """Damage or differences were found, or the command failed for another reason than those below."""
    USAGE = 2
    """Wrong usage, or an option is missing that the message names."""
    IN_USE = 3
    """A running application, or another command, holds the directory or location."""
    UNKNOWN_LAYOUT = 4
    """There is no state of a known layout, or the store is of another kind than was given."""
    DAMAGED = 5
    """Files are missing, cut or damaged, or do not decode."""
    NO_ACCESS = 6
    """The operating system, or the storage, refuses access."""
    INTERRUPTED = 130
    """Ended by Ctrl-C. Commands that can continue say so."""


_CODES: Final[dict[type[Exception], ExitCode]] = {
    UnknownKindError: ExitCode.USAGE,
    StoreNotFoundError: ExitCode.USAGE,
    NothingExpiresError: ExitCode.USAGE,
    StatePointersError: ExitCode.USAGE,
    MigrationRefusedError: ExitCode.USAGE,
    RowFileExistsError: ExitCode.USAGE,
    TargetNotEmptyError: ExitCode.USAGE,
    TooManyShardsError: ExitCode.USAGE,
    DirectoryInUseError: ExitCode.IN_USE,
    LocalStateLockedError: ExitCode.IN_USE,
    LocationInUseError: ExitCode.IN_USE,
    UnknownLayoutError: ExitCode.UNKNOWN_LAYOUT,
    StoreFormatError: ExitCode.UNKNOWN_LAYOUT,
    UnknownColumnFamilyError: ExitCode.UNKNOWN_LAYOUT,
    UnknownEntryError: ExitCode.UNKNOWN_LAYOUT,
    DirectoryDamagedError: ExitCode.DAMAGED,
    StoreUndecodableError: ExitCode.DAMAGED,
    LocalStateCorruptedError: ExitCode.DAMAGED,
    RecoveryError: ExitCode.DAMAGED,
    FormatError: ExitCode.DAMAGED,
    DeserializationError: ExitCode.DAMAGED,
    StateCheckError: ExitCode.DAMAGED,
    MigrationCheckError: ExitCode.DAMAGED,
    RowFileError: ExitCode.DAMAGED,
    DirectoryNotAccessibleError: ExitCode.NO_ACCESS,
    LocationError: ExitCode.NO_ACCESS,
    LocationMismatchError: ExitCode.FOUND_PROBLEMS,
    PointersOutdatedError: ExitCode.FOUND_PROBLEMS,
    StateWentOnError: ExitCode.FOUND_PROBLEMS,
    LocationNotWritableError: ExitCode.NO_ACCESS,
    ApplicationRunningError: ExitCode.IN_USE,
    ChangelogMissingError: ExitCode.UNKNOWN_LAYOUT,
    ChangelogDamagedError: ExitCode.DAMAGED,
    KafkaUnavailableError: ExitCode.NO_ACCESS,
}


def exit_code_of(error: StateStoreError) -> ExitCode:
    """Return the exit code of a command that raised `error`: that of the nearest class that has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ExitCode.FOUND_PROBLEMS)
