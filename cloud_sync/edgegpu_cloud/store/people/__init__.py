"""People in the store: accounts, web sessions, API tokens, one-time links, failed sign-ins."""
