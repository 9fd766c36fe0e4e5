"""Tools: how models are offered them and call them, and what an answer says beside its calls.

format            what a format of calls is, and all that the rest of the program knows of one
formats           those that are known by name, a file each
markers           the texts, or special tokens, around calls and reasoning
reasoning         what the target thinks before it answers
answer            what an answer holds, whole and as it grows
answer_stream     an answer parsed as it arrives; its calls with
call_reader       calls in JSON, and the text around them
arguments         what models write as the arguments of a call, and the JSON that it stands for
call_spans        which parts of an answer are calls that its grammar constrains
character_reader  how both read it
lark              pieces of grammars for the calls of any format

The grammar of calls is `core.grammar.calls`; the tools in a prompt are `core.text.written_tools`. Both ask the format.

To add a tool format:
1. Copy the file of `core.tools.formats` that is most like it: `hermes` has markers around calls, `plain_json` none.
2. Declare its markers, and say which chat templates ask for it.
3. Override what differs: how a prompt shows calls, the grammar of them, how they are read.
4. Add it to `FORMATS` in `core/tools/formats/__init__.py`, and take its marker out of `_NOT_READ` there, if it is in
   that list of formats whose templates are refused. The configuration then knows it by its name.
5. Add to tests/core/tools/call_forms.py what its models write: every test of formats takes its cases from there.
"""
