"""The rules of the link, pure: how long to wait, which version to speak, what to leave alone."""
