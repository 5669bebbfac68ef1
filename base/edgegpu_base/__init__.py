"""Plumbing that every process of edgegpu uses: tasks, files, Unix sockets, the API server. It knows nothing of GPUs."""
