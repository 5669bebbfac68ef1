"""The boxes' summaries, and the lists that are made of them in SQL."""
