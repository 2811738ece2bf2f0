"""Kubernetes objects as we read them: only the fields we use, decoded straight from bytes.

Encoding such a Struct gives our *projection* of the object, which is what snapshot topics carry.
"""
