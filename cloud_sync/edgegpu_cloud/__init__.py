"""The controller: what boxes shall be, what they are asked, what came of it."""
