"""Operations: changes of many boxes, and what came of each on every box."""
