"""Anthropic's own client against the HTTP face, in one process."""

from __future__ import annotations

import anthropic

from serve_app.http.service import Service
from tests.serve_app.clients import http_client


def anthropic_client(service: Service, api_key: str = "none") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        api_key=api_key, base_url="http://service", max_retries=0, http_client=http_client(service)
    )
