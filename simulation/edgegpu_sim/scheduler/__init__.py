"""A small kube-scheduler: the node's own resources first, then the extender, as the real one does."""
