"""What the runs of an answer become, whatever the protocol: text, reasoning, calls, an ending, usage."""
