"""The pure core: records of the log become rows. No I/O, no clock."""
