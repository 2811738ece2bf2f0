"""Counts with their nouns, in texts for people."""


def counted(count: int, what: str, plural: str = "") -> str:
    """``1 pod``, ``2 pods``. ``plural``: for a noun that needs more than an s (``indexes``)."""
    return f"{count} {what if count == 1 else plural or f'{what}s'}"
