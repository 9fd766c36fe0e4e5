"""Runs `taskspec` as a person does, in a process of its own, and finds whatever it leaves behind."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import IO

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0  # seconds for the next thing that a command has to say
MARK = "TASKSPEC_TEST_MARK"  # in the environment of the command, and so of everything it starts


class Command:
    """A running `taskspec`, in a session of its own as in a terminal of its own. `home` stands for the user's."""

    def __init__(self, home: Path, *arguments: str, in_background: bool = False) -> None:
        self._mark = uuid.uuid4().hex
        self._directories: set[str] = set()
        self.home = home
        # A shell starts background jobs with SIGINT ignored, and what they start inherits that: no terminal does.
        signal.signal(signal.SIGINT, signal.SIG_IGN if in_background else signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serve_app.cli.main", *arguments],
            cwd=ROOT,
            env={**os.environ, MARK: self._mark, "HOME": str(home), "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def stdout(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self, wanted: Callable[[str], object], what: str = "") -> str:
        """The next line of its output that is wanted, within `PATIENCE`; else an error with what it said."""
        late, said = Timer(PATIENCE, self._kill), list[str]()
        late.start()
        try:
            for line in self.stdout:
                if wanted(line):
                    return line
                said.append(line)
        finally:
            late.cancel()
        awaited = f"not said within {PATIENCE:.0f} s, or at all: {what or inspect.getsource(wanted).strip()}"
        raise AssertionError("".join([f"{awaited}\n", *said, self.process.communicate(timeout=PATIENCE)[1]]))

    def match(self, pattern: str) -> str:
        """The first group of a pattern in the next line that has it."""
        found = re.search(pattern, self.line(re.compile(pattern).search, pattern))
        assert found is not None
        return found[1]

    def processes(self) -> list[str]:
        """Command lines of all that it has started and that still runs, itself included."""
        found = [line for process in psutil.process_iter() if (line := self._line(process)) is not None]
        self._directories |= {match for line in found for match in re.findall(r"/tmp/taskspec-\w+", line)}
        return found

    def owns(self, process: psutil.Process) -> bool:
        """Whether it has started this process."""
        return self._line(process) is not None

    def left(self) -> list[str]:
        """What is left of it once it has ended: processes, and directories seen while it ran."""
        return [*self.processes(), *(name for name in self._directories if Path(name).exists())]

    def kill(self) -> None:
        """Whatever happens in a test, nothing outlives it."""
        self._kill()
        self.process.communicate(timeout=PATIENCE)

    def _kill(self) -> None:
        for process in psutil.process_iter():
            if self._line(process) is not None:
                with suppress(psutil.NoSuchProcess):  # ended meanwhile
                    process.kill()

    def _line(self, process: psutil.Process) -> str | None:
        """Its command line, if it is one of this command's."""
        try:
            return " ".join(process.cmdline()) if process.environ().get(MARK) == self._mark else None
        except psutil.Error:  # ended meanwhile, or somebody else's
            return None
