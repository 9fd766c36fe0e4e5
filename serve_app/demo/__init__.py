"""`taskspec demo`: every draft beside plain decoding, over HTTP."""
