"""The OpenAI protocol: `/v1/models`, `/v1/completions` and `/v1/chat/completions`, whole and streamed.

JSON enters, is checked field by field, and becomes `GenerationRequest`s; committed runs become text, logprobs and
usage. Clients of OpenAI's API work unchanged. What TaskSpec adds, none of which disturbs them:

    request   speculation: {enabled, num_speculative_tokens, task}    all optional
              top_k, min_p
    choice    token_ids     the tokens this choice, or this chunk of it, committed; the end-of-sequence token too
              speculation   {proposed, accepted} of the same; in a chunk the first `accepted` token_ids were proposed
    usage     speculation   {task, proposed, accepted, acceptance_rate, tokens_per_target_pass} of the request

A stream sends one chunk per committed run; where the service sets `ingress.stream_interval_s`, one per interval for all
runs in it, with the counts of all of them: accepted tokens need not be the first then. A chunk's text may lag behind
its token_ids while a character is unfinished or a stop string may have begun. `token_ids` and logprobs go hand in hand,
and end where the text ends.
"""
