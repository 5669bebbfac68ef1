"""The protocol between boxes and their controller: topics, messages, signatures, rules. Both sides use it."""
