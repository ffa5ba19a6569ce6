"""Exit codes: what a script can tell from one, and which error has which."""

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
    """Damage or differences were found, or what was asked for can't be done, for another reason than those below."""
    USAGE = 2
    """The command was called wrongly, or must be told more: an option that the message names is missing."""
    IN_USE = 3
    """A running application, or another command, holds the directory or location."""
    UNKNOWN_LAYOUT = 4
    """There is no state that is known, or it is another kind of store than was said."""
    DAMAGED = 5
    """Files are missing, cut or damaged, or do not decode."""
    NO_ACCESS = 6
    """The operating system, or the storage, refuses access."""
    INTERRUPTED = 130
    """Ended by Ctrl-C. The same command goes on from there, where it says so."""


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
    LocationNotWritableError: ExitCode.NO_ACCESS,
    ApplicationRunningError: ExitCode.IN_USE,
    ChangelogMissingError: ExitCode.UNKNOWN_LAYOUT,
    ChangelogDamagedError: ExitCode.DAMAGED,
    KafkaUnavailableError: ExitCode.NO_ACCESS,
}


def exit_code_of(error: StateStoreError) -> ExitCode:
    """Return with what a command ends that raised `error`: the code of the nearest class that has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), ExitCode.FOUND_PROBLEMS)
