"""What an answer may say: grammars of JSON schemas, regular expressions and the like, as masks over tokens.

A grammar is a string in the form of llguidance, which compiles and matches it
(https://github.com/guidance-ai/llguidance).

building   grammars from what clients send, and what is wrong with those
matching   the state of an answer's grammar: tokens that it allows, and those that it forces
"""
