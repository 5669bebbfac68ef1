"""The commands for the store as a whole: backup, restore, migrate."""
