"""The platform of all services: objects, messages, topics, units and ports."""
