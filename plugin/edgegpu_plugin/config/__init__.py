"""The plugin's configuration file: its schema and its reader."""
