"""The pure core of edgegpu: units, device ids, inventory, placement and the ledger. It imports no I/O library."""
