"""Process nodes: run a pod's containers as processes of this machine, over the cluster port.

There is no container runtime: images of registries are not used, and image files run with Apptainer
(``core/image_files.py``). docs/process-nodes.md lists what is supported; docs/decisions has the
alternatives.

``core``: lifecycle, environment, volumes and names of a pod as pure functions. ``launcher``: the
process between the node and a container's processes. ``agent``: the node.
"""
