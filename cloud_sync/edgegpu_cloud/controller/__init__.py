"""The controller's loop: what comes up from boxes, what goes down to them, and the rules for both."""
