"""The FastAPI application of an ingress replica: every route, and the forms of errors.

app           routes of all protocols, put together
error_forms   an error in the form of the protocol that was asked
head          HEAD where GET works
front_page    `/`, for people
tokenizing    vLLM's `/tokenize`, `/detokenize`, `/tokenizer_info`
"""
