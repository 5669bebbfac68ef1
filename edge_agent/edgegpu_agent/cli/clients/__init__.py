"""Whom the command line asks: the plugin, the agent, and what doctor looks at."""
