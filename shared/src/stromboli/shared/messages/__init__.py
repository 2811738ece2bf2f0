"""The messages on all topics.

A message is a Struct with a type name (``stromboli.<area>.<fact>.v<n>``) in the ``ce_type`` header,
not in the value. Messages are only extended by fields with defaults; a new meaning is a new type.
The golden bytes of every released version can always be decoded.
"""
