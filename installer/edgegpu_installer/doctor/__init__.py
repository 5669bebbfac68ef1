"""The doctor: what is wrong with GPU sharing on a box, why, and which command fixes it."""
