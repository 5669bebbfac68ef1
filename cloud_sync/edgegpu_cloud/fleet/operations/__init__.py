"""One change of many boxes: its kinds, its runner, what came of it."""
