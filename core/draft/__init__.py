"""The draft side of speculative decoding: sessions, proposals, and branches drafted during verification.

drafter               an engine with its thread and wire
engine                the draft passes of all sessions
session, line         one generation; a chain of drafted tokens, of which a session has one or several
proposer              the model, run over lines
lookahead             the branches that are drafted while the target verifies
token_confidence      the chance that a drafted token is accepted
"""
