"""The platform shared by all services: objects, messages, topics, units and ports."""
