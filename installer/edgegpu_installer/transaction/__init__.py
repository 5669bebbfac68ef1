"""A change of the machine as a whole or not at all: journal, states, baseline, undo."""
