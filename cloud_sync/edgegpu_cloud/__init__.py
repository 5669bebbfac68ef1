"""The controller: the desired state of boxes, commands to them, and their results."""
