"""Enrolment of boxes: authorities, tokens, certificates, the controllers' keys."""
