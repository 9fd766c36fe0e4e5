"""Shipped configurations.

smoke        takes minutes, to see a retraining work; prompts.jsonl has its prompts
smollm2      for a real model, SmolLM2-135M-Instruct; its shipped draft was made with it
llama2-13b   for a GPU cluster
"""
