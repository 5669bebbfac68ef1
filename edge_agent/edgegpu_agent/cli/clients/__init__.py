"""The clients of the command line: for the plugin, the agent, and what the doctor reads."""
