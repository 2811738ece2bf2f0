"""What is completed and what is refused, kind by kind: plain functions of an object and of what is
known around it.

The same functions answer webhooks, REST and manifests, and the controller asks them again about
what came in while no door stood there. Pure, like a core.
"""
