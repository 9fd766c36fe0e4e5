"""`taskspec bench`: latency, throughput and acceptance rate of any OpenAI-compatible server under load."""
