"""The admission pipeline: read the object, default it, validate it, answer or write it."""
