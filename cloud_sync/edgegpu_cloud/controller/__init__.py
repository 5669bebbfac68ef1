"""The controller's loop: the messages from boxes, the messages to them, and the rules for both."""
