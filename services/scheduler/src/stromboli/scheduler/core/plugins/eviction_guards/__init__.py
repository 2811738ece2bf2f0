"""Plugins that only protect victims: cdp, conformance, eviction-limits and pdb."""
