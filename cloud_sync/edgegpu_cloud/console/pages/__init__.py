"""The screens of the console: a module for each, which has its routes."""
