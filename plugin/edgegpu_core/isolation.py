"""What a reason says of a container: that nothing holds it to its memory, or only how its compute is held."""

MPS_REASON = "mps: "
"""How reasons begin where memory is held, and compute by time in place of shares of multiprocessors."""


def loose_words(reason: str) -> str:
    """Return a reason as a sentence's part that stands alone; empty for none."""
    return reason if not reason or reason.startswith(MPS_REASON) else f"not held to its memory: {reason}"


def node_words(problem: str) -> str:
    """Return what a node's problem with isolation comes to for its containers, as a sentence."""
    if problem.startswith(MPS_REASON):
        return f"compute is held by time and not by MPS: {problem.removeprefix(MPS_REASON)}"
    return f"containers are not held to their memory: {problem}"
