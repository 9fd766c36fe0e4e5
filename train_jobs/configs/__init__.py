"""Shipped configurations: smoke (takes minutes), family (makes the shipped bundle), llama2-13b (for a GPU cluster)."""
