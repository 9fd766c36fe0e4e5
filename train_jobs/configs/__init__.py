"""Shipped configurations.

smoke        takes minutes, to see a retraining work
family       makes the shipped bundle
smollm2      for a real model, SmolLM2-135M-Instruct; its shipped draft was made with it
llama2-13b   for a GPU cluster
"""
