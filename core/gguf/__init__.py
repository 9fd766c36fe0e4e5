"""GGUF files as models, quantised or not: each is converted once into a Hugging Face directory, which the rest loads.

conversion    from a file to its directory in the cache
reading       a checked file: metadata and tensors
config        config.json from the metadata
weights       model.safetensors from the tensors
tokenizer     tokenizer, chat template and end-of-sequence ids from the metadata

Tokenizers are built here and not by transformers, which loses how some of them split digits.
"""
