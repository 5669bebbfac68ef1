"""What an installation changes on a machine: a plan of files, accounts and certificates."""
