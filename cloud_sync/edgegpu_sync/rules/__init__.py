"""Order, replay, settling and commands as pure rules, for either side."""
