"""The fields of requests that generate: names, types, limits and defaults. They have OpenAI's form, which all share."""
