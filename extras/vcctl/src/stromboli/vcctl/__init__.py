"""Volcano's command-line tools under their own names, for existing scripts.

Commands, flags, output and exit codes are Volcano's: errors go to stdout, and -n and -N have
different meanings in vcctl job and in the v* programs. New scripts should use ``strom``.
"""
