"""Durations as users write them: the meaning that all services share."""

from stromboli.shared.durations import duration as duration
