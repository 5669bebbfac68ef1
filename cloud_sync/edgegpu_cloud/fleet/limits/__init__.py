"""The limits of apps for people: amounts, previews as bars, the history of an app's limits."""
