"""The page at `/`, for people who open the service's address in a browser."""

from __future__ import annotations

from html import escape

from serve_app.http.service import Service

LINKS = {
    "/docs": "every endpoint and field, to try out",
    "/v1/models": "the model: target, draft, numerics, context, tasks",
    "/health": "whether a request sent now would be answered",
    "/metrics": "counters of this service, for Prometheus",
}
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{model} - TaskSpec</title>
<style>body {{ font: 16px/1.5 sans-serif; max-width: 40em; margin: 3em auto; padding: 0 1em }}</style>
<h1>{model}</h1>
<p>This is a TaskSpec service: it answers with this model behind OpenAI's API, and lets small draft models guess several
tokens ahead. The answers are the model's own.</p>
<p>Clients take this address with <code>/v1</code> as their <code>base_url</code>.</p>
<ul>
{links}
</ul>
</html>
"""


def front_page(service: Service) -> str:
    """HTML: what this is, and where to look."""
    links = (f'<li><a href="{path.removeprefix("/")}">{path}</a>: {what}</li>' for path, what in LINKS.items())
    return PAGE.format(model=escape(service.model_name), links="\n".join(links))
