"""``strom demo``: why gangs need a gang scheduler, shown on this machine in about a minute."""
