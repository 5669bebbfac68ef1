"""An app's limits brought to stand as asked: judged before, applied under its version, followed, put back where due."""
