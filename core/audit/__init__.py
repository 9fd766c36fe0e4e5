"""Answers held to plain decoding: which are the target's own token for token, and how far off the others are.

expected   what is recorded of an answer: its token ids, or its text
audit      plain decoding along recorded answers, and the verdict on each
"""
