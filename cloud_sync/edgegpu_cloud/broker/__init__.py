"""The broker beside a controller: its configuration, and how a box's connection to it is cut."""
