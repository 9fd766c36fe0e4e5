"""What an answer may say: grammars of JSON schemas, regular expressions and the like, as masks over tokens.

A grammar is a string in the form of llguidance, which compiles and matches it
(https://github.com/guidance-ai/llguidance).

building           grammars from what clients send, and what is wrong with those
json_schema        a JSON schema in the form that llguidance holds exactly
calls              grammars of calls of tools, in the format of the target
matching           the state of an answer's grammar: tokens that it allows, and those that it forces
trial              whether a grammar can be used, before it is
complaints         what llguidance says of a grammar, in words of this service
grammar_tokenizer  the tokenizer of grammars: the name of a special token in their text is text
"""
