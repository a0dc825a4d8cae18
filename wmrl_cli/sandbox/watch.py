"""How much lies in a work folder: what no rlimit bounds is measured while the script runs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wmrl_cli.sandbox.base import Limits
from wmrl_cli.sandbox.evidence import Stop


@dataclass(frozen=True)
class FolderWatch:
    """The work folder of one run."""

    path: str

    def over_limit(self, limits: Limits) -> Stop | None:
        """The limit that the folder's contents break now; counting stops where one is broken."""
        files, size, pending = 0, 0, [self.path]
        while pending:
            try:
                entries = os.scandir(pending.pop())
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed meanwhile
            except OSError:
                return Stop.FILES  # closed to us, or deeper than a path may be long: what cannot be counted is too much
            with entries:
                for entry in entries:
                    files += 1
                    if files > limits.files:
                        return Stop.FILES
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        else:
                            size += entry.stat(follow_symlinks=False).st_blocks * 512
                    except OSError:
                        continue
            if size > limits.disk_bytes:
                return Stop.DISK
        return None
