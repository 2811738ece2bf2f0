"""``strom demo``."""


def demo() -> None:
    """Compare gang scheduling with pod-by-pod scheduling.

    It shows why gangs need a gang scheduler, takes about a minute and runs in this process.
    """
    from stromboli.embedded.demo import demo

    demo.demo()
