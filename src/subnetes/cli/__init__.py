"""The `subnetes` command: the composition root, where the other rooms are put together and started."""
