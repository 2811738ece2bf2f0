"""The commands that this distribution adds to ``strom``: their options and help.

A command imports the code that it runs only when it is called. These imports take seconds of CPU,
which would delay ``--help`` and errors in the arguments.
"""
