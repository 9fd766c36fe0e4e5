"""The protocols: leaves that translate between a client's bodies and the HTTP core, and import no other protocol.

openai      completions and chat completions
responses   OpenAI's Responses API, as another form of a chat request
anthropic   Anthropic's Messages API, likewise

`translation` reads the bodies of the last two as chat requests.
"""
