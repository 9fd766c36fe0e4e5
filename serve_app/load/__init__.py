"""`taskspec bench`: one load for any OpenAI-compatible server, and what it says of latency, rate and acceptance."""
