"""Every rule of admission as accepted and rejected objects, for the tests of all entry points."""
