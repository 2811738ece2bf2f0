"""Volcano's command line tools under their own names, for scripts that exist.

Commands, flags, output and exit codes are those of spec/cli.md: errors go to stdout, -n and -N swap
their meaning between vcctl job and the v* programs. Whoever writes something new uses ``strom``.
"""
