"""Counts with their nouns, in texts for people."""


def counted(count: int, what: str) -> str:
    """``1 pod``, ``2 pods``; for nouns whose plural ends in s."""
    return f"{count} {what}" + ("" if count == 1 else "s")
