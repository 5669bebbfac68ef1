"""The commands that request something of boxes: limits, sharing, commands; and the outcome of each."""
