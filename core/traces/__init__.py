"""What a service answered, kept for training: an answer as a record, and the store of them.

record          an answer of the target
store           shards of answers in a directory; `writer` is the thread that writes them
reservoir       what waits for the writer where every client has a bounded number of answers kept
memory_files    directories on a memory file system, for traces of which no disk has anything
"""
