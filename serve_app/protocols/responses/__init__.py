"""OpenAI's `/v1/responses`, without state: the client sends the whole conversation with every request.

`requests` and `items` have the body, `translation` makes a chat request of it, `writer` turns the pieces of the answer
into output items and events about them, and `bodies` has what is sent. All limits are those of a chat request.
"""
