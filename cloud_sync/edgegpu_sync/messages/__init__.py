"""The messages between boxes and a controller: each body, its fields, and its reader."""
