"""The protocols: leaves that translate between a client's bodies and the HTTP core, and import no other protocol.

openai         completions, chat completions and the list of models
responses      OpenAI's Responses API, as another form of a chat request
anthropic      Anthropic's Messages API, likewise
translation    bodies of other protocols as chat requests, and their faults in the client's own names
single_answer  the writer of an answer that is one list of items
registry       all of them, for `serve_app.api`

To add a protocol, make a folder like `responses` with

    requests     its body, of `Fields`: each field, with what is ignored and what is refused
    translation  `translated(body)`: the `ChatRequest` of a body, and the client's names of its fields
    bodies       what it sends
    writer       an `AnswerWriter`, or a `SingleAnswerWriter`: the answer, whole and streamed
    routes       `routes(service)`: `translated_batch`, then `respond`
    errors       only if its errors have a form of their own

and one line in `registry.PROTOCOLS`. `python -m tests.serve_app.api.api_page > serve_app/API.md` then lists its fields.
"""
