"""The target side of speculative decoding: sessions, batches, the commit rule, links to drafts, and other sources."""
