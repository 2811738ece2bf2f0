"""The relational store: tables, migrations, the transaction of a batch, queries.

SQLite and PostgreSQL hold the same tables and answer the same queries; ``database`` has what
differs between them.
"""
