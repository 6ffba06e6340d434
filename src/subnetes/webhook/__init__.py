"""The conversion webhook, a process apart from whatever holds a lease. `subnetes webhook` runs it."""
