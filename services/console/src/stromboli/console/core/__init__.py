"""What pages show, as pure functions: objects of REST become rows, filters and facts."""
