"""The pure core of the IP pools: how many, which ones, to whom. No clock, no I/O, no logging."""
