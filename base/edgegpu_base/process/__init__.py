"""A process under systemd: its tasks, its watchdog, its memory, its priority."""
