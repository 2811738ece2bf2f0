"""The messages on all topics.

A message is a Struct with a type name (``stromboli.<area>.<fact>.v<n>``) in the ``ce_type`` header,
not in the value. Messages grow by fields with defaults; a new meaning is a new type. Golden bytes
of every released version always decode.
"""
