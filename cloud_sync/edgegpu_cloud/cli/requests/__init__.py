"""The commands that ask boxes for something: limits, sharing, commands, and what became of each."""
