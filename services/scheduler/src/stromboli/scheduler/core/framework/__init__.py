"""One scheduling session: extension points, statements, filter and score, plugin isolation."""
