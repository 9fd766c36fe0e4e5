"""Serves a scripted target until it is ended; `python -m tests.clients.scripted_server`, in the project's environment.

It needs no model, so what a client does with calls that the target chose to make, and how the API bears any input, is
tested on it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from core.generation import GenerationRequest, Run
from serve_app.api.app import create_app
from tests.serve_app.calling import CallingService
from tests.serve_app.live import live
from tests.serve_app.scripted import tokens_of

THOUGHT, CALL = "One place, one call.", '{"name": "weather", "arguments": {"city": "Oslo"}}'
CALLS = tokens_of(f"<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{CALL}\n</tool_call>")
SAYS = tokens_of("It is seven degrees.")


class AgentsService(CallingService):
    """Calls `weather` where the prompt has tools, until it has the result of one."""

    max_choices = 16

    def runs(self, request: GenerationRequest) -> Iterator[Run]:
        prompt = self.tokenizer.raw.decode(list(request.tokens), skip_special_tokens=False)
        self.asked.clear()  # it may answer very many
        asked = CallingService()
        asked.tokens = CALLS if '"weather"' in prompt and "\ntool: " not in prompt else SAYS
        return asked.runs(request)


def main() -> None:
    service = AgentsService()
    with live(create_app(service)) as url:
        sys.stdout.write(f"OpenAI base_url: {url}/v1   model: {service.model_name}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
