"""The FastAPI application of an ingress replica: every route, the forms of errors, and the table of what there is.

app           routes of all protocols, put together
error_forms   an error in the form of the protocol that was asked
head          HEAD where GET works
front_page    `/`, for people
tokenizing    vLLM's `/tokenize`, `/detokenize`, `/tokenizer_info`
table         writes serve_app/API.md: endpoints and fields, what becomes of each
"""
