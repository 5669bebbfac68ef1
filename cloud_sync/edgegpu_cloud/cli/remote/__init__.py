"""A controller on another machine, reached by its API: what commands use in the place of the services here."""
