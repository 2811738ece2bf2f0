"""Accounts without an API server: who has which token, and RBAC's roles, from a file.

``rbac`` decides as RBAC does, ``file`` reads.
"""

from stromboli.embedded.accounts.file import FileAccounts, read

__all__ = ["FileAccounts", "read"]
