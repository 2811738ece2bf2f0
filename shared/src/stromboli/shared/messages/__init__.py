"""Everything that stands on a topic.

A message is a Struct with a type name (``stromboli.<area>.<fact>.v<n>``) that travels in the
``ce_type`` header, never in the value. Messages grow by fields with defaults; a new meaning is a
new type. Golden bytes of every version decode for ever.
"""
