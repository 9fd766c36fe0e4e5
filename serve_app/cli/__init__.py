"""The command line, `taskspec`."""
