"""What an ingress replica has answered over HTTP, as Ray metrics by the name of the API key."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ray.serve import metrics

from serve_app.http.handled import Handled


class HttpMetrics:
    """`taskspec_http_*`, of the requests that are counted in `handled`."""

    def __init__(self, handled: Counter[Handled]) -> None:
        by_status: Any = ("key_name", "method", "status")  # Ray's annotation admits one tag, its code any number
        self._handled = handled
        self._exported: Counter[Handled] = Counter()
        self._responses = metrics.Counter("taskspec_http_responses", tag_keys=by_status)
        self._sheds = metrics.Counter("taskspec_http_sheds", tag_keys=("key_name",))

    def export(self) -> None:
        """Export what was counted since the last time."""
        for request, more in (self._handled - self._exported).items():
            tags = {"key_name": request.key_name, "method": request.method, "status": str(request.status)}
            self._responses.inc(more, tags)
            if request.shed:
                self._sheds.inc(more, {"key_name": request.key_name})
        self._exported = self._handled.copy()
