"""Backups of a server in one file, and their restoration to any data directory."""

from fairlead.backup.create import BackupOptions, create_backup
from fairlead.backup.restore import restore_backup

__all__ = ["BackupOptions", "create_backup", "restore_backup"]
