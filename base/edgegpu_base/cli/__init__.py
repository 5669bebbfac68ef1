"""Parts that every command line of edgegpu shares: start and exit, help, output, lengths of time."""
