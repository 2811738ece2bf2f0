"""Commands about what ran: history, timelines, explanations of the past, usage."""
