"""The help texts of ``--isolate`` and ``--visible``, which several programs share."""

ISOLATE_HELP = (
    "Isolate containers: they see system folders read-only, and have home and /tmp of their own."
)
VISIBLE_HELP = "Path that isolated containers can also read. May be repeated."
