"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`.

`requests` and `blocks` have the body, `translation` makes a chat request of it, `writer` turns the pieces of the answer
into content blocks and events about them, `bodies` has what is sent, and `errors` Anthropic's form of errors. All
limits are those of a chat request.
"""
