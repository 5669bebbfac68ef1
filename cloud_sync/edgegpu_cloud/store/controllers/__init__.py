"""The controllers in the store: the partitions that they hold, who leads, their certificates."""
