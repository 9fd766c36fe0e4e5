"""The API keys that are valid now: those of the configured file, as it is now, and those of an environment variable."""

from __future__ import annotations

import hmac
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from core.errors import ConfigError
from serve_app.access.key_file import KeyHolders, hashed_key, key_hash, read
from serve_app.access_config import ApiKeys
from serve_app.http.owners import KeyHolder

LOOK_EVERY = 0.5  # seconds between looks at the file

logger = logging.getLogger(__name__)

Clock = Callable[[], float]


class _Version(NamedTuple):
    """What changes when a file does."""

    inode: int
    size: int
    modified_ns: int


class Keys:
    """Raises `ConfigError` if the file cannot be read; later the last good keys stay valid. `clock` gives seconds."""

    def __init__(self, file: Path | None, from_environment: KeyHolders, clock: Clock = time.monotonic) -> None:
        self._file = file
        self._from_environment = from_environment
        self._clock = clock
        self._version = None if file is None else _version(file)  # of the keys below
        self._from_file: KeyHolders = {} if file is None else read(file)
        self._looked_at = clock()
        self._error = ""  # why they could not be read since

    @property
    def holders(self) -> list[KeyHolder]:
        """Those of the valid keys, by name."""
        self._look()
        return sorted([*self._from_file.values(), *self._from_environment.values()])

    def holder_of(self, key: str) -> KeyHolder | None:
        """The holder of a key as it came in a header; None if it is not valid.

        It takes the same time wherever the key differs from the valid ones.
        """
        self._look()
        digest, owner = key_hash(key.encode("latin-1", "replace")), None
        for holders in (self._from_file, self._from_environment):
            for valid, holder in holders.items():
                if hmac.compare_digest(digest, valid):
                    owner = holder
        return owner

    def _look(self) -> None:
        """Read the file again if it has changed, until that succeeds."""
        if self._file is None or self._clock() - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = self._clock()
        version = _version(self._file)
        if version == self._version:
            return
        try:
            self._from_file, self._version, self._error = read(self._file), version, ""
        except ConfigError as error:
            if self._error != str(error):
                logger.warning("the API keys stay as they were: %s", error)
            self._error = str(error)


def _version(file: Path) -> _Version | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return _Version(status.st_ino, status.st_size, status.st_mtime_ns)


def from_environment(config: ApiKeys) -> KeyHolders:
    """The keys in the environment variable of the configuration, if it names one. Raises `ConfigError` without any."""
    if config.env is None:
        return {}
    entries = [entry.strip() for entry in os.environ.get(config.env, "").split(",")]
    holders: KeyHolders = {}
    for number, entry in enumerate(filter(None, entries), start=1):
        holders |= hashed_key(entry) or {key_hash(entry.encode()): KeyHolder(f"env-{number}")}
    if not holders:
        raise ConfigError(
            f"ingress.keys.env: the environment variable {config.env} has no key; write some, between commas"
        )
    return holders


def check(config: ApiKeys) -> KeyHolders:
    """What `from_environment` gives, if also the file can be read and there is a key. Raises `ConfigError`."""
    holders = from_environment(config)
    if config.file is not None and not read(config.file) and not holders:
        raise ConfigError(f"{config.file} has no key; make one with `taskspec keys add NAME --file {config.file}`")
    return holders
