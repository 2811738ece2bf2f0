"""Kubernetes objects: Structs with only the fields that Stromboli uses, decoded from bytes.

Encoding such a Struct gives the *projection* of the object, which snapshot topics carry.
"""
