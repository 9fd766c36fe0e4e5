"""The HTTP core of every protocol: from a checked chat request to the pieces of its answer, whole or as events.

service             what the HTTP side asks of the service behind it; the ingress implements it
body                request bodies; `content_encoding` undoes gzip
schema/             the fields of requests that generate, with their limits; other protocols translate into these
prompts, batch      tokenises a checked request, and turns it into `GenerationRequest`s
merged_runs         the runs of all prompts of one request; `disconnect` ends what no client waits for
ledger              what came of an answer, counted once: usage, traces and metrics read from it
output/             what runs become: text, reasoning and calls, how an answer ends, usage
writer              what a protocol writes of them; `answers` sends it, as a whole or as server-sent events
errors              failures as status and error; owners and served_names: who asks, and for which model

It imports no protocol. `serve_app.protocols` has those, and `serve_app.api` puts them together.
"""
