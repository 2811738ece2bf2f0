"""Accounts without an API server: tokens and RBAC roles from a file.

``file`` reads the accounts, ``rbac`` authorizes requests.
"""

from stromboli.embedded.accounts.file import FileAccounts, read

__all__ = ["FileAccounts", "read"]
