"""The wire between drafts and verifiers, and the threads that step the engines at its ends.

messages        what crosses the wire
transport       the ZeroMQ sockets that carry it
engine_thread   the thread that owns an engine and its sockets
"""
