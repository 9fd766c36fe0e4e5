"""What an answer may say: grammars of JSON schemas, regular expressions and the like, as masks over tokens.

A grammar is a string in the form of llguidance, which compiles and matches it (https://github.com/guidance-ai/llguidance).
"""
