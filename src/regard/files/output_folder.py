"""The names under which `training` uses `durable_folder`; gone as soon as its run folders are durable folders."""

from __future__ import annotations

from regard.files.durable_folder import LOCK as LOCK
from regard.files.durable_folder import RECORD as MANIFEST
from regard.files.durable_folder import FolderRecord as OutputManifest
from regard.files.durable_folder import (
    any_files,
    describe_changes,
    foreign_entries,
    lock_folder,
    refuse_foreign_content,
    remove_files,
)

__all__ = [
    "LOCK",
    "MANIFEST",
    "OutputManifest",
    "any_files",
    "describe_changes",
    "foreign_entries",
    "lock_folder",
    "refuse_foreign_content",
    "remove_files",
]
