"""Plumbing for every process of edgegpu: tasks, files, Unix sockets, the API server; nothing about GPUs."""
