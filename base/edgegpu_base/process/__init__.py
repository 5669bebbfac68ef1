"""Parts of a process under systemd: tasks, watchdog, memory, priority."""
