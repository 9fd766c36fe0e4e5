"""Prompts: from files or traces into their splits (`sources`), and those that the router learns from (`labelled`)."""
