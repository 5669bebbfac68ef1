"""The installer's access to the cluster: API objects, accounts, the install lease."""
