"""People: accounts, passwords, sign-in, web sessions, API tokens, one-time links. No HTTP in it."""
