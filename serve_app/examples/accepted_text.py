"""Streams an answer and puts brackets around the text that a draft proposed and the target accepted.

python -m serve_app.examples.accepted_text [URL] [PROMPT]
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main(url: str = "http://127.0.0.1:8000/v1", prompt: str = "What is 17 + 25?") -> None:
    client = OpenAI(base_url=url, api_key="unused")
    [model, *_] = client.models.list()
    stream = client.chat.completions.create(
        model=model.id,
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"speculation": {"num_speculative_tokens": 6}},  # always draft, so that there is something to see
    )
    for chunk in stream:  # one per pass of the target; the last has the usage
        for choice in chunk.choices:
            text = choice.delta.content or ""
            accepted = (choice.model_extra or {})["speculation"]["accepted_characters"]
            print(f"[{text[:accepted]}]{text[accepted:]}" if accepted else text, end="", flush=True)
        if chunk.usage is not None:
            speculation = (chunk.usage.model_extra or {})["speculation"]
            print(f"\n{speculation['accepted']} of {speculation['proposed']} proposed tokens were accepted")


if __name__ == "__main__":
    main(*sys.argv[1:])
