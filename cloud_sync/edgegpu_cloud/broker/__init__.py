"""The broker beside a controller: its configuration, and the connections that are cut."""
