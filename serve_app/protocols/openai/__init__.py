"""The OpenAI protocol: `/v1/models`, `/v1/completions` and `/v1/chat/completions`, whole and streamed.

The bodies of requests are the core's (`serve_app.http.schema`), with the fields of vLLM's that need no other engine;
`bodies` has what is sent, `writers` make it of the pieces of an answer, and `logprobs` those of answers and prompts.

A request body is checked field by field and becomes `GenerationRequest`s; committed runs become text, logprobs and
usage. Clients of OpenAI's API work unchanged. TaskSpec adds:

    request   speculation: {enabled, num_speculative_tokens, task}    all optional
              store: false    the answer is proposed to no later request, nor kept as a trace
              continue_from: [token ids] or "content"    what the client has of an answer that was cut; the rest is sent
              special_tokens_in_content: true    tokens of the special tokens that messages have in their text
    answer    seed          that of the request, or the one drawn for it; in a stream in a choice's first chunk
    choice    token_ids     the committed tokens of this choice or chunk, the end-of-sequence token included
              speculation   {proposed, accepted} of these; in a chunk the first `accepted` token_ids were proposed, and
                            {accepted_characters} is how many characters of its text they completed
    usage     speculation   {task, rerouted, rerouted_from, proposed, accepted, acceptance_rate, tokens_per_target_pass,
                            sources} of the request; `sources` has {proposed, accepted} by who proposed: draft,
                            own_text, answers, prediction, grammar

A stream sends one chunk per committed run. A chunk's text may lag behind its token_ids while a character is unfinished
or a stop string may have begun. `token_ids` and logprobs correspond, and end where the text ends.
"""
