"""`taskspec keys`: makes, revokes and lists the API keys of a service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from serve_app.access import key_file

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="API keys of a service: a file with the hash of each, which running services follow.",
)

File = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="`ingress.keys.file` of a service, or `serve --keys FILE`.")
]
Name = Annotated[str, typer.Argument(help="Whose key it is; access log and limits go by it.", show_default=False)]


@app.command()
def add(
    name: Name,
    file: File,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may also deploy bundles and scale pools, on the service's page.")
    ] = False,
) -> None:
    """Make a key, print it once, and store its hash.

    The key cannot be had again from the file. The file is made if there is none, for its owner alone; one that there
    is keeps its owner and permissions. A service that uses it takes the key within a second.

    Example: `taskspec keys add alice --file keys`

    Only the key is on stdout. Clients send it as `Authorization: Bearer KEY`: OpenAI's take it from the environment
    variable OPENAI_API_KEY, as `taskspec chat` and `taskspec bench` do.
    """
    key = key_file.add(file, name, admin=admin)
    sys.stderr.write(f"The {'admin ' if admin else ''}key of {name}; it is not shown again:\n")
    sys.stdout.write(f"{key}\n")


@app.command()
def revoke(name: Name, file: File) -> None:
    """Take a key from the file; a service that uses the file refuses it within a second.

    Requests that it has let in are answered to their end.

    Example: `taskspec keys revoke alice --file keys`
    """
    key_file.revoke(file, name)
    sys.stdout.write(f"revoked the key of {name}\n")


@app.command("list")
def list_(file: File) -> None:
    """List the names of the keys, one a line; behind that of an admin key stands `admin`.

    Example: `taskspec keys list --file keys`
    """
    for holder in sorted(key_file.read(file).values()):
        sys.stdout.write(f"{holder.name}{' admin' if holder.admin else ''}\n")
