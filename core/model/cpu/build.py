"""kernels.c as a shared library for this processor, compiled by gcc where that has not been done yet.

    python -m core.model.cpu.build

A library's name holds the level it was compiled for and a digest of its source and options. So one of other sources,
or for another processor, is never loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from filelock import FileLock

from core.errors import ConfigError
from core.model.pages import PAGE_SIZE

SOURCE = Path(__file__).with_name("kernels.c")
_AVX2 = ("avx2", "fma")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
LEVELS = {
    "amx": (*_AVX512, "avx512_bf16", "amx_tile", "amx_bf16"),
    "avx512_bf16": (*_AVX512, "avx512_bf16"),
    "avx512": _AVX512,
    "avx2": _AVX2,
    "plain": (),
}
"""What of a processor the kernels use, by Linux' names, the best level first."""
# No option lets gcc change what a sum or product is rounded to.
_OPTIONS = (
    *("-std=gnu11", "-O3", "-shared", "-fPIC", "-fopenmp", f"-DPAGE_SIZE={PAGE_SIZE}"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
_SYSCALL, _ASK, _TILES = 158, 0x1023, 18  # arch_prctl and its arguments: to be given tiles


def level() -> str:
    """The best that this processor has and, where it is tiles, that Linux lets this process use from now on."""
    has = _features()
    levels = [name for name, needed in LEVELS.items() if has.issuperset(needed)]
    return levels[levels[0] == "amx" and not _tiles_granted()]


def load(level: str, source: Path = SOURCE, options: Sequence[str] = ()) -> ctypes.CDLL:
    """The library for a level, compiled first where it is not kept: a second or two."""
    options = (*_OPTIONS, *map(_option, LEVELS[level]), *options)
    built_of = "\0".join((platform.machine(), *options)).encode() + SOURCE.read_bytes() + source.read_bytes()
    library = _place(f"{source.stem}.{level}.{hashlib.sha256(built_of).hexdigest()[:16]}.so")
    if not library.exists():
        with FileLock(library.with_name("kernels.lock")):
            if not library.exists():
                _compile(source, options, library)
    return ctypes.CDLL(str(library))


def _compile(source: Path, options: Sequence[str], library: Path) -> None:
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        raise ConfigError(
            f"{compiler} is to compile what computes models on CPUs, and there is none: install it (apt install gcc),"
            " or write `decoder: torch`"
        )
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        result = Path(directory, library.name)
        command = [compiler, *options, f"-I{SOURCE.parent}", "-o", str(result), str(source), "-lm"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise ConfigError(f"{compiler} does not compile {source.name}, which takes gcc 11 or later: {run.stderr}")
        result.replace(library)


def _place(name: str) -> Path:
    """Beside the compiled modules, or in the user's cache where it is not there and may not be put there."""
    beside = SOURCE.parent / "__pycache__"
    if (beside / name).exists() or os.access(beside if beside.exists() else SOURCE.parent, os.W_OK):
        place = beside / name
    else:
        place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "taskspec", name)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


@cache
def _features() -> frozenset[str]:
    """Of the first processor; none where Linux names them otherwise."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _tiles_granted() -> bool:
    return bool(ctypes.CDLL(None).syscall(_SYSCALL, _ASK, _TILES) == 0)


def _option(feature: str) -> str:
    """gcc's, which spells some otherwise."""
    return "-m" + feature.replace("avx512_", "avx512").replace("_", "-")


if __name__ == "__main__":
    load(level())
