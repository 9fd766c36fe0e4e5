"""The draft side of speculative decoding: sessions, proposals, and branches drafted during verification."""
