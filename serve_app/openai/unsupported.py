"""Fields that other servers have and this one has not, each with the values that ask for nothing.

A request with such a value is served; with any other it is refused, and the field named.
"""

from __future__ import annotations

Unsupported = dict[str, tuple[object, ...]]

GENERATION: Unsupported = {
    **dict.fromkeys(("echo", "ignore_eos", "use_beam_search", "early_stopping"), (False,)),
    **dict.fromkeys(("return_token_ids", "return_tokens_as_token_ids"), (False,)),
    **dict.fromkeys(("best_of", "length_penalty", "repetition_penalty"), (1,)),
    **dict.fromkeys(("min_tokens", "priority"), (0,)),
    **dict.fromkeys(("bad_words", "logits_processors"), ([],)),
    **dict.fromkeys(("allowed_token_ids", "prompt_logprobs", "truncate_prompt_tokens", "structured_outputs"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    "spaces_between_special_tokens": (True,),
    "response_format": ({"type": "text"},),
}
COMPLETION: Unsupported = GENERATION | {"suffix": ("",)}
CHAT: Unsupported = GENERATION | {
    **dict.fromkeys(("audio", "web_search_options", "moderation", "chat_template", "mm_processor_kwargs"), ()),
    **dict.fromkeys(("tools", "functions", "documents"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    "add_special_tokens": (False,),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
}
TOKENIZE: Unsupported = {"chat_template": (), "mm_processor_kwargs": (), "tools": ([],)}
MESSAGE: Unsupported = {
    **dict.fromkeys(("function_call", "audio", "tool_call_id"), ()),
    **dict.fromkeys(("reasoning", "reasoning_content"), ("",)),
    "tool_calls": ([],),
}
TEXT_PART: Unsupported = dict.fromkeys(("image_url", "input_audio", "file", "refusal"), ())
