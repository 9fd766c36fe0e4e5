"""Output of commands: progress and transcripts."""
