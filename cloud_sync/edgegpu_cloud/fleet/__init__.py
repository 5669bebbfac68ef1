"""The fleet as people handle it: names, views, changes."""
