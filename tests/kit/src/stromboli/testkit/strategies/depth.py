"""The number of examples of a property, which STROM_DEPTH multiplies (``make properties``)."""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("STROM_DEPTH", "1"))


def examples(count: int) -> settings:
    """Settings for a property that takes one or two seconds with this number of examples."""
    return settings(max_examples=count * FACTOR, deadline=None)
