"""The process between the node and a container's processes: standard library only, fast to start.

A launcher runs one container once. Its node talks to it over pipes on stdin and stdout, in lines of
JSON. When stdin ends, for any reason, the launcher kills everything that the container started, so
processes never outlive their node.

``container_view``: namespaces and the container's view of the file system; ``isolated_root``: the
view of an isolated container. ``children``: start, count and kill processes. ``segments``: bounded
output on disk. ``main``: the loop.
"""
