"""``strom demo``."""


def demo() -> None:
    """Compare gang scheduling with scheduling by pod.

    It shows why gangs need a gang scheduler, in about a minute and in this process.
    """
    from stromboli.embedded.demo import demo

    demo.demo()
