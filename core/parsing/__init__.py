"""What the target says in its text beside plain content: its reasoning, and calls of tools.

answer            what an answer holds, whole and as it grows
marks             the markers of reasoning and calls, as text or as special tokens
formats           which markers and forms a chat template uses
answer_stream     an answer taken apart as it arrives
character_reader  how it is read
calls_grammar     a grammar whose texts are valid calls
"""
