"""The target side of speculative decoding: what a target pass computes, what it commits, and who proposes to it.

verifier                    an engine with its thread, wire and model
engine                      the passes, one after another
scheduler, batch            which sessions run, which wait or make room; the rows of a pass
session, commit             one generation; the commit rule
draft_links, draft_link     what passes between an engine and its sessions' drafts; what is known of one draft
sources                     proposals without a draft
validation, logprobs        checks of requests; log-probabilities for clients
"""
