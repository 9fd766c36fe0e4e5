"""JSON schemas in the form that the engine holds exactly; what it cannot hold is refused, or ignored if that is asked.

The engine, llguidance, reads most of JSON Schema, but not all it reads is what it then enforces: each module says what
it does about that.

rewriting     a schema, keyword by keyword, with
numbers         bounds and multiples, computed in number_bounds
strings         lengths, patterns and formats; patterns has their syntax
arrays          items, also such as must differ
objects         properties
combinations    `$ref`, `allOf`, `anyOf`, `oneOf`, `const`, `enum`
context       what all of these share while one schema is rewritten
references    what a `$ref` means
keywords      tables of the keywords that are known
final_checks  what is looked at once all is rewritten, with
disjointness    proofs that 'one of' means 'any of'
finiteness      which parts have a value that ends
schema        what a rewritten schema is, and what is wrong with one
"""
