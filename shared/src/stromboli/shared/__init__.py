"""What more than one service means by the same word: objects, messages, topics, units and ports."""
