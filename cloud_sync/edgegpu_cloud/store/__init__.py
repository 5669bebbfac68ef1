"""The controller's store, a database. No other package uses SQLAlchemy."""
