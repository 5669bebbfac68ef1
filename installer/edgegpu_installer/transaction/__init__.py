"""Changes of the machine that are committed whole or rolled back whole: journal, states, baseline, undo."""
