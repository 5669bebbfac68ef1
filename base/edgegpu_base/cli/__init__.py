"""What every command line of edgegpu shares: how it begins and ends, its help, what it prints, lengths of time."""
