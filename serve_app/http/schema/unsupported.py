"""Fields of other servers that are refused or ignored here, each with the values that ask for nothing.

A request with such a value is served; with any other it is refused, and the field named.
"""

from __future__ import annotations

from serve_app.http.schema.fields import Unsupported

GENERATION: Unsupported = {
    **dict.fromkeys(("use_beam_search", "early_stopping"), (False,)),
    **dict.fromkeys(("return_token_ids", "return_tokens_as_token_ids"), (False,)),
    **dict.fromkeys(("best_of", "length_penalty"), (1,)),
    "priority": (0,),
    **dict.fromkeys(("bad_words", "logits_processors"), ([],)),
    **dict.fromkeys(("allowed_token_ids", "prompt_logprobs", "truncate_prompt_tokens"), ()),
    "spaces_between_special_tokens": (True,),
}
COMPLETION: Unsupported = GENERATION | {"suffix": ("",)}
CHAT: Unsupported = GENERATION | {
    "echo": (False,),
    **dict.fromkeys(("audio", "web_search_options", "moderation", "chat_template", "mm_processor_kwargs"), ()),
    **dict.fromkeys(("functions", "documents"), ([],)),
    "function_call": ("none", "auto"),
    "add_special_tokens": (False,),
    "modalities": (["text"],),
    "verbosity": ("medium",),
}
TOKENIZE: Unsupported = {"chat_template": (), "mm_processor_kwargs": ()}
MESSAGE: Unsupported = dict.fromkeys(("function_call", "audio"), ())
TEXT_PART: Unsupported = dict.fromkeys(("image_url", "input_audio", "file"), ())
