"""The pure rules of both sides: order, replay, settling and commands."""
