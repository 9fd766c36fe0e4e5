"""Where a made draft belongs: a directory that is free, or has an earlier draft, which a better one replaces."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from core.atomic_files import ASIDE
from core.errors import ConfigError


class DraftPlace:
    """A directory apart from the work directory `work`. Raises `ConfigError` where no draft can be put."""

    def __init__(self, directory: Path, work: Path) -> None:
        self.directory = there = directory.resolve()
        self._earlier = there.with_name(f"{ASIDE}earlier-{there.name}")  # while another one is put in its place
        work = work.resolve()
        if there.is_relative_to(work) or work.is_relative_to(there):
            raise ConfigError(f"draft: {there} and the work directory {work} must be apart; write another directory")
        if there.is_mount():
            raise ConfigError(f"draft: {there} is a mount point; write a directory in it")
        try:
            there.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix=ASIDE, dir=there.parent):
                pass
            if self._earlier.exists() and not there.exists():  # killed in between
                self._earlier.rename(there)
        except OSError as error:
            raise ConfigError(
                f"draft: nothing can be written into {there.parent} ({error.strerror}); write another directory"
            ) from error

    @property
    def free(self) -> bool:
        """True if nothing is there, or an empty directory."""
        return not self.directory.exists() or (self.directory.is_dir() and not any(self.directory.iterdir()))

    def has(self, draft: Path) -> bool:
        """True if the same draft is there, byte for byte."""
        files = [file.name for file in draft.iterdir()]
        return len(filecmp.cmpfiles(draft, self.directory, files, shallow=False)[0]) == len(files)

    def put(self, draft: Path) -> None:
        """Copy a draft there by one rename, in place of what was there: a kill at any point loses neither."""
        aside = self.directory.with_name(ASIDE + self.directory.name)
        for remnant in (aside, self._earlier):
            shutil.rmtree(remnant, ignore_errors=True)
        shutil.copytree(draft, aside)
        if self.directory.exists():
            self.directory.rename(self._earlier)
        aside.rename(self.directory)
        shutil.rmtree(self._earlier, ignore_errors=True)
