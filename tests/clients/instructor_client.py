"""Asks by instructor, in each of its modes for OpenAI's protocol; prints the answers as JSON.

`python instructor_client.py BASE_URL MODEL`, in an environment of its own: instructor wants an older OpenAI client.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import instructor
from openai import OpenAI
from weather import MESSAGES, Weather

MODES = ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS")


def main(base_url: str, model: str) -> None:
    asked: dict[str, Any] = {"model": model, "messages": MESSAGES, "max_retries": 0}
    answers = {}
    for mode in MODES:
        client = instructor.from_openai(OpenAI(base_url=base_url, api_key="unused"), mode=instructor.Mode[mode])
        answers[mode] = client.create(response_model=Weather, **asked)
        if mode == "TOOLS":
            answers["TOOLS streamed"] = list(client.create_partial(response_model=Weather, **asked))[-1]
    sys.stdout.write(json.dumps({name: answer.model_dump() for name, answer in answers.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
