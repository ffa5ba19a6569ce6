"""Migration: state of any layout turned into a newer format, or into another layout, verified entry by entry."""

from upgrade_tools.migration.migrate import downgrade, finish_upgrade, migrate
from upgrade_tools.migration.report import MigrationReport, StoreMigration
from upgrade_tools.migration.request import MigrationRequest, TargetFormat, TargetLayout

__all__ = [
    "MigrationReport",
    "MigrationRequest",
    "StoreMigration",
    "TargetFormat",
    "TargetLayout",
    "downgrade",
    "finish_upgrade",
    "migrate",
]
