"""Debian's sshd on hosts, as on machines of one's own: root logs in with a key that is made here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.bench.hosts import Host
from tests.eventually import eventually

SSHD = "/usr/sbin/sshd"
COMMANDS = ("ssh", "ssh-keygen", "rsync", SSHD)
_CONFIG = """
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
PrintMotd no
PrintLastLog no
"""


def make_key(file: Path) -> Path:
    """A key without a passphrase; its public half lies beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


def start_sshd(host: Host, key: Path) -> None:
    """Let root log in with `key`, and give root a home of this host, with what Debian puts into a new one.

    Its sshd is to be started again after each boot.
    """
    config, log, own = (host.home.with_name(name) for name in ("sshd_config", "sshd.log", "host_key"))
    if not own.exists():
        make_key(own)
        shutil.copytree("/etc/skel", host.home, dirs_exist_ok=True)
    config.write_text(f"HostKey {own}\nAuthorizedKeysFile {key}.pub{_CONFIG}")
    log.write_text("")
    _give_home(host)
    host.run(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    host.run(["mkdir", "/run/sshd"])
    host.run([SSHD, "-f", config, "-E", log])
    eventually(lambda: "listening" in log.read_text(), f"sshd on {host.name}", seen=log.read_text)


def _give_home(host: Host) -> None:
    """Let the host's own list of users say where root's home is: sshd and ssh go by that, not by HOME."""
    users = host.home.with_name("passwd")
    users.write_text(f"root:x:0:0:root:{host.home}:/bin/bash\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n")
    host.run(["mount", "--bind", users, "/etc/passwd"])
