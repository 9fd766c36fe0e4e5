"""Who may use the HTTP server, and how much: API keys, limits per key, CORS, request ids, the access log."""
