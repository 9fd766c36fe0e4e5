"""What an answer may say: grammars of JSON schemas, regular expressions and the like, as masks over tokens.

A grammar is a string in the form of llguidance, which compiles and matches it
(https://github.com/guidance-ai/llguidance).

building        grammars from what clients send, and what is wrong with those
matching        the state of an answer's grammar: tokens that it allows, and those that it forces
trial           whether a grammar can be used, before it is
complaints      what llguidance says of a grammar, in words of this service
rewriting       a JSON schema in the form that llguidance holds exactly, with the help of
keywords        tables of those that are known
references      what a `$ref` means
number_bounds   bounds and multiples
patterns        regular expressions
disjointness    proofs that 'one of' means 'any of'
arrangements    lists whose items differ
finiteness      which parts have a value that ends
faults          what is wrong with a schema, and where
"""
