"""The process between the node and a container's processes: standard library only, quick to start.

One launcher runs one container once. It is started with a pipe on stdin and one on stdout, so its
node speaks with it in lines of JSON; when the pipe on stdin ends, for whatever reason, everything
that the container started is killed. So a node that dies takes its processes with it.

``room``: namespaces and the container's view of the file system. ``children``: starting, counting
and killing. ``segments``: what was written, in bounded space. ``main``: the loop.
"""
