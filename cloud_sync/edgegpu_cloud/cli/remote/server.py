"""Which controller the commands reach."""

from contextvars import ContextVar

SERVER: ContextVar[str] = ContextVar("server", default="")
"""What `--server` names: the URL of a console; empty: the controller of this machine."""
