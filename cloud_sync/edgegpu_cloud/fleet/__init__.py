"""The fleet for operators: names, views, changes."""
