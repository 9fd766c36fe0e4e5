"""Lets the model call a function, answers the calls, and prints what the model makes of it.

python -m serve_app.examples.tools [URL] [QUESTION]
"""

from __future__ import annotations

import json
import sys

from openai import OpenAI
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

WEATHER: ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city, now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": True,  # a grammar holds the target to these parameters
    },
}


def weather(city: str) -> str:
    return json.dumps({"city": city, "sky": "clear", "celsius": 21})


def main(url: str = "http://127.0.0.1:8000/v1", question: str = "How is the weather in Oslo and in Rome?") -> None:
    client = OpenAI(base_url=url, api_key="unused")
    [model, *_] = client.models.list()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    answer = client.chat.completions.create(model=model.id, messages=messages, tools=[WEATHER]).choices[0].message
    messages.append(answer.to_dict())  # type: ignore[arg-type]
    for call in answer.tool_calls or ():
        if call.type == "function":
            result = weather(**json.loads(call.function.arguments))
            print(f"{call.function.name}({call.function.arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    final = client.chat.completions.create(model=model.id, messages=messages, tools=[WEATHER])
    print(final.choices[0].message.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
