"""The commands that this distribution adds to ``strom``: their options and help.

Each imports the code that it runs when it is called. These imports take seconds of CPU, which
``--help`` and an error in the arguments need not pay.
"""
