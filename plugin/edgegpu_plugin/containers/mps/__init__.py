"""NVIDIA MPS: shares of a card's multiprocessors."""
