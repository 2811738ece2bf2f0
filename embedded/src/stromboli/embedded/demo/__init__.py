"""``strom demo``: why gangs need a gang scheduler, shown on this machine in less than a minute."""
