"""Puts edgegpu on a box and takes it off again: transactions that k3s and kubelet survive, whatever dies on the way."""
