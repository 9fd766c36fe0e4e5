"""The kernels' library: compiled once for this processor and source, and never loaded where it does not belong."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.errors import ConfigError
from core.model.cpu import build

ROOT = Path(__file__).parents[4]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small source in a place of its own."""
    path = tmp_path / "kernels.c"
    path.write_text("const int number = 1;\n")
    monkeypatch.setattr(build, "SOURCE", path)
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The libraries that were compiled."""
    made: list[Path] = []
    real = build._compile

    def counted(source: Path, options: list[str], library: Path) -> None:
        time.sleep(0.1)
        made.append(library)
        real(source, options, library)

    monkeypatch.setattr(build, "_compile", counted)
    return made


def test_a_library_is_compiled_once_for_its_source_and_level(source: Path, compiled: list[Path]) -> None:
    build.load("plain", source)
    build.load("plain", source)
    assert len(compiled) == 1
    source.write_text("const int number = 2;\n")
    build.load("plain", source)
    assert len(set(compiled)) == 2
    assert [path.name.split(".")[:2] for path in compiled] == 2 * [["kernels", "plain"]]
    if build.level() != "plain":
        build.load(build.level(), source)
        assert len(set(compiled)) == 3


def test_one_at_a_time_compiles(source: Path, compiled: list[Path]) -> None:
    others = [threading.Thread(target=build.load, args=("plain", source)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert len(compiled) == 1
    assert not [path for path in compiled[0].parent.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ("fpu sse2", "plain"),
        ("avx avx2", "plain"),
        ("fma avx2", "avx2"),
        ("fma avx2 avx512f", "avx2"),
        ("fma avx2 avx512f avx512bw avx512dq avx512vl", "avx512"),
        ("fma avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16", "avx512_bf16"),
        ("fma avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16 amx_tile amx_bf16", "amx"),
    ],
)
def test_the_best_level_is_taken_that_a_processor_has_whole(
    monkeypatch: pytest.MonkeyPatch, features: str, level: str
) -> None:
    monkeypatch.setattr(build, "_features", lambda: frozenset(features.split()))
    monkeypatch.setattr(build, "_tiles_granted", lambda: True)
    assert build.level() == level


@pytest.mark.parametrize(("answer", "level"), [(0, "amx"), (-1, "avx512_bf16")])
def test_tiles_are_asked_for(monkeypatch: pytest.MonkeyPatch, answer: int, level: str) -> None:
    monkeypatch.setattr(build, "_features", lambda: frozenset(build.LEVELS["amx"]))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(syscall=lambda *_: answer))
    assert build.level() == level


def test_every_level_is_compiled_by_this_gcc() -> None:
    """Those too that this processor lacks: AMX's instructions are otherwise met in service only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ctypes, "CDLL", Path)
        for level in build.LEVELS:
            assert Path(str(build.load(level))).exists()


def test_where_there_is_no_compiler_it_is_asked_for(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-gcc")
    with pytest.raises(ConfigError, match=r"no-such-gcc .*apt install gcc"):
        build.load("plain", source)


def test_what_does_not_compile_leaves_nothing(source: Path) -> None:
    source.write_text("int number = nonsense;\n")
    with pytest.raises(ConfigError, match="nonsense"):
        build.load("plain", source)
    assert not list(source.parent.rglob("*.so"))


def test_a_fresh_process_loads_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(build.level())
    monkeypatch.setenv("CC", "no-such-gcc")
    code = "from core.model.cpu import build; build.load(build.level())"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not run.returncode, run.stderr


def test_make_compiles_anew_where_the_source_is_newer() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("$(READY): ")[2]
    assert "core/model/cpu/kernels.c" in recipe.partition("\n")[0].split()
    assert "-m core.model.cpu.build" in recipe
