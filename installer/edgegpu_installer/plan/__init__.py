"""The plan of an installation: files, accounts and certificates."""
