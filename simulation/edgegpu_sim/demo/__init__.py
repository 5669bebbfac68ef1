"""The simulated demo: the scenarios on simulated cards, and a box with its cloud."""
