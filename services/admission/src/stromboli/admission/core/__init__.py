"""What the door completes and refuses: plain functions of the object and the folded picture.

The same functions answer webhooks, REST and manifests.
"""
