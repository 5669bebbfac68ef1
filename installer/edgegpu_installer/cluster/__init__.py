"""The cluster as an installation uses it: API objects, accounts, the lease over several servers."""
