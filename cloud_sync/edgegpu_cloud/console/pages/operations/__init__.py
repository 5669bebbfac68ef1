"""Changes of many boxes: begun, listed, followed."""
