"""Small clients of a running service, with OpenAI's official library (`pip install openai`); a test runs them."""
