"""Between text and token ids.

tokenizer     text and chat messages to ids, with the target's tokenizer
detokenizer   ids to text as they come, up to a stop string
vocabulary    the check that draft and target number their tokens alike
prompts       prompts from a JSONL file
"""
