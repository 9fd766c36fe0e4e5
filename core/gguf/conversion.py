"""Converts a GGUF file into a Hugging Face directory in the user's cache, once for each content.

The directory appears whole, by one rename. Processes that want the same file wait for the first of them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from filelock import FileLock

from core.atomic_files import ASIDE, sync
from core.errors import ConfigError
from core.gguf.config import model_config
from core.gguf.reading import GgufFile
from core.gguf.tokenizer import write_json, write_tokenizer
from core.gguf.weights import dtype, write_weights

_FORMAT = b"1"  # goes up when the same file is converted into something else
_log = logging.getLogger(__name__)


def converted(path: Path, on_progress: Callable[[str], None] = _log.warning) -> Path:  # at this level commands show it
    """The Hugging Face directory of a GGUF file, from the cache if the file has been converted before.

    `on_progress` is told when a conversion begins and when it has ended. Raises `ConfigError`, or
    `UnsupportedArchitecture`; the cache is then as it was.
    """
    digest = _digest_of(path)
    directory = _cache() / f"{path.stem}-{digest}"
    if directory.is_dir():
        return directory
    aside = directory.parent / f"{ASIDE}{digest}"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{aside}.lock"):
            if not directory.is_dir():
                _convert(path, aside, directory, on_progress)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be converted into {directory.parent} ({error}); "
            "set TASKSPEC_CACHE to a directory with more room"
        ) from error
    return directory


def _convert(path: Path, aside: Path, directory: Path, on_progress: Callable[[str], None]) -> None:
    """Write `directory` by way of `aside`, where a killed conversion may have left something."""
    on_progress(f"{path.name}: converting it to {directory}, once; this takes a while")
    began = time.monotonic()
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir()
        _write_model(GgufFile(path), aside)
        for file in aside.iterdir():
            sync(file)
        sync(aside)
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync(directory.parent)
    size = sum(file.stat().st_size for file in directory.iterdir())
    on_progress(f"{path.name}: converted in {time.monotonic() - began:.1f} s, {size / 1e6:.0f} MB")


def _write_model(file: GgufFile, directory: Path) -> None:
    config = model_config(file)
    ids = write_tokenizer(file, directory, config)
    write_weights(file, config, directory / "model.safetensors")
    write_json(directory / "config.json", config | ids | {"dtype": dtype(file)})


def _cache() -> Path:
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taskspec"
    return Path(os.environ.get("TASKSPEC_CACHE") or users) / "gguf"


def _digest_of(path: Path) -> str:
    try:
        about = path.stat()
        return _digest(path, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error


@cache
def _digest(path: Path, _size: int, _changed: int) -> str:
    """A hash of the content and of the format of conversions, hashed once per process while the file is unchanged."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.sha256, _FORMAT)).hexdigest()
