"""Who may act on the service: an admin by key; where there are no keys, programs on the service's own machine.

A page of another origin may not, even in the browser of one who may. There are no cookies to ride on. Browsers send
`Origin` with every POST, and it has to be that of the page.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request

from core.errors import InvalidRequest
from serve_app.http.owners import holder_of_request

LOCAL_NAMES = ("localhost", "localhost.")
OWN = "same-origin"  # what browsers say of a request by a page to its own origin
FORWARDED = ("forwarded", "x-forwarded-", "x-envoy-", "x-real-ip", "via")  # headers of proxies begin so
NEEDS_KEY = "this needs an admin key: make one with `taskspec keys add NAME --admin --file FILE`"
NEEDS_LOOPBACK = (
    "without API keys only programs on the service's own machine may do this, at a loopback address: start the service "
    "with `--keys FILE`, and make an admin key with `taskspec keys add NAME --admin --file FILE`"
)
WRONG_ORIGIN = "a page of another origin may not do this; behind a proxy, let it pass the `Host` header on"


class Viewer(NamedTuple):
    """Who looks: the name of the key, None without one; whether they may act, or else why not."""

    name: str | None
    acts: bool
    why: str = ""


class Forbidden(InvalidRequest):
    """Somebody who may not act has tried to."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(None, message, status=403, code=code)


def viewer(request: Request, *, keyed: bool) -> Viewer:
    """Who sent the request, to a service that asks for keys if `keyed`."""
    holder = holder_of_request(request.scope)
    if keyed:
        acts = holder is not None and holder.admin
        return Viewer(holder and holder.name, acts, "" if acts else NEEDS_KEY)
    acts = _is_local(request)
    return Viewer(None, acts, "" if acts else NEEDS_LOOPBACK)


def check_may_act(request: Request, *, keyed: bool) -> None:
    """Raises `Forbidden` if the sender may not act, or if a page of another origin made a browser send it."""
    if not _is_of_own_origin(request):
        raise Forbidden(WRONG_ORIGIN, "wrong_origin")
    if not viewer(request, keyed=keyed).acts:
        raise Forbidden(*(NEEDS_KEY, "admin_key_needed") if keyed else (NEEDS_LOOPBACK, "loopback_only"))


def _is_local(request: Request) -> bool:
    """Whether a program on this machine sent it here, by an address that no name server can give to others' pages."""
    peer = request.client.host if request.client else ""
    host = _split(f"//{request.headers.get('host', '')}").hostname or ""
    forwarded = any(name.startswith(FORWARDED) for name in request.headers)
    return _is_loopback(peer) and (host in LOCAL_NAMES or _is_loopback(host)) and not forwarded


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_of_own_origin(request: Request) -> bool:
    origin, host = request.headers.get("origin"), request.headers.get("host", "").lower()
    if request.headers.get("sec-fetch-site", OWN) != OWN:
        return False
    return origin is None or (host != "" and _split(origin).netloc.lower() == host)


def _split(url: str) -> SplitResult:
    """The parts of an address; none of one that is broken."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
