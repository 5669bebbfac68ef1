"""The demo on a box: services placed on its own cards and checked."""
