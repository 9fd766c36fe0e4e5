"""ASGI middleware in front of the application. None holds a message back, so streams flow as they are made."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InvalidRequest
from serve_app.access.keys import Keys
from serve_app.access.limits import COMPUTING, Allowances, TooMany, charged
from serve_app.access.request_ids import HEADER, number
from serve_app.api.error_forms import error_response
from serve_app.console.page import CONSOLE, is_for_page
from serve_app.http.errors import FULL, QUEUE, place_of
from serve_app.http.exchange import Exchange, Facts, failed
from serve_app.http.handled import GONE, METHODS, NO_KEY, OTHER, Handled
from serve_app.http.owners import HOLDER, client_name, presented_key
from serve_app.http.request_history import RequestHistory
from serve_app.spans import NOTHING, SERVICE, Span, Spans

MAX_HEADER_BYTES = 64 << 10
OPEN = frozenset({"/health", "/healthz"})  # paths that need no key and have no limits
LONGEST_PATH = 200  # characters of a path in the log
# OpenTelemetry's names of what a request for an answer asks for, by its path.
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
}

logger = logging.getLogger(__name__)

# Serve's handlers write what its own logger's children say to the log of the replica.
access_log = logging.getLogger("ray.serve.taskspec.access")


class Requests:
    """The outermost: gives every request an id, counts it in the history, and writes a line of the access log.

    If `numbered_by_proxy`, Serve's proxy writes the id into the response. A request for an answer of `model` has a span
    among `spans`.
    """

    def __init__(
        self, app: ASGIApp, *, numbered_by_proxy: bool, model: str, history: RequestHistory, spans: Spans
    ) -> None:
        self._app = app
        self._history = history
        self._numbered_by_proxy = numbered_by_proxy
        self._model = model
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None
        shed, request_id = False, number(scope)
        exchange = Exchange(self._span(scope, request_id))
        own_headers = [] if self._numbered_by_proxy else [(HEADER, request_id.encode())]

        async def send_numbered(message: Message) -> None:
            nonlocal status, shed
            if message["type"] == "http.response.start":
                status = message["status"]
                shed = status >= 500 and Headers(raw=message.get("headers", [])).get(QUEUE) == FULL
                message["headers"] = [*message.get("headers", ()), *own_headers]
            await send(message)

        try:
            with exchange.current():
                await self._app(scope, receive, send_numbered)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            self._history.note(scope["path"], Handled(client_name(scope) or NO_KEY, method, status or GONE, shed))
            seconds = exchange.end(status)
            _log(scope, status or GONE, seconds, request_id, exchange.facts())

    def _span(self, scope: Scope, request_id: str) -> Span:
        """Of a request for an answer, within the one that its headers tell of."""
        operation = OPERATIONS.get(scope["path"]) if scope["method"] == "POST" else None
        if operation is None:
            return NOTHING
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": SERVICE,
            "gen_ai.response.model": self._model,
            "http.request.method": scope["method"],
            "url.path": scope["path"],
            "taskspec.request_id": request_id,
        }
        return self._spans.begin(f"{operation} {self._model}", Headers(scope=scope), attributes, of_request=True)


class Failures:
    """Answers the failures of all within, inside of CORS so that web pages may read it; refuses large headers.

    A failure is not raised further, as servers log what it says, which may be text of a client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        size = sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MAX_HEADER_BYTES:
            error = InvalidRequest(None, f"the headers are over the limit of {MAX_HEADER_BYTES} bytes", status=431)
            await _refuse(error, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:  # noqa: BLE001 - of any kind: it is the last that may answer
            logger.error("request %s failed: %s", number(scope), place_of(error))
            failed(error)
            if not has_begun:  # else the server closes the connection, as the response is not whole
                await _refuse(error, scope, receive, send)


class KeyCheck:
    """Lets requests with a valid API key pass, and any to `OPEN` paths or for the files of the console's page."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN and not is_for_page(scope):
            key = presented_key(Headers(scope=scope))
            holder = None if key is None else self._keys.holder_of(key)
            if holder is None:
                wrong = "send an API key in the header 'Authorization: Bearer KEY'" if key is None else "wrong API key"
                error = InvalidRequest(None, wrong, status=401, code="invalid_api_key")
                await _refuse(error, scope, receive, send, {"WWW-Authenticate": "Bearer"})
                return
            scope[HOLDER] = holder
        await self._app(scope, receive, send)


class LimitCheck:
    """Holds clients to their limits, and tells them in every response what is left.

    What operators do on the console is not held up by a flood of requests for answers.
    """

    def __init__(self, app: ASGIApp, allowances: Allowances) -> None:
        self._app = app
        self._allowances = allowances

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or scope["path"].startswith(CONSOLE):
            await self._app(scope, receive, send)
            return
        allowance = self._allowances.of(client_name(scope))

        async def send_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                limits = ((name.encode(), value.encode()) for name, value in allowance.headers().items())
                message["headers"] = [*message.get("headers", ()), *limits]
            await send(message)

        if scope["method"] not in COMPUTING:
            await self._app(scope, receive, send_limits)
            return
        try:
            allowance.enter()
        except TooMany as error:
            await _refuse(error, scope, receive, send_limits, {"Retry-After": str(error.retry_after_s)})
            return
        charged.set(allowance)  # in the context of this request's task
        try:
            await self._app(scope, receive, send_limits)
        finally:
            allowance.leave()


async def _refuse(
    error: Exception, scope: Scope, receive: Receive, send: Send, headers: Mapping[str, str] | None = None
) -> None:
    """Answer with an error, in the form of the path's protocol."""
    await error_response(error, scope["path"], headers)(scope, receive, send)


def _log(scope: Scope, status: int, seconds: float, request_id: str, facts: Facts) -> None:
    """One line; of JSON if Serve writes its log so, and then with the `facts`."""
    method, path, name = scope["method"], quote(scope["path"][:LONGEST_PATH]), client_name(scope)
    own = {"request_id": request_id, "method": method, "path": path, "status": status, "key": name}
    line = ("%s %s %d %.1f ms %s %s", method, path, status, seconds * 1000, request_id, name or NO_KEY)
    access_log.info(*line, extra={**own, **facts})
