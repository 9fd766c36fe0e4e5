"""What the target says in its text beside plain content: its reasoning, and calls of tools.

answer            what an answer holds, whole and as it grows
marks             the markers of reasoning and calls, as text or as special tokens
formats           which markers and forms a chat template uses
answer_stream     an answer taken apart as it arrives
arguments         what models write as the arguments of a call, and the JSON that it stands for
call_spans        which parts of an answer are calls that its grammar holds
character_reader  how both read it
calls_grammar     a grammar whose texts are valid calls
"""
