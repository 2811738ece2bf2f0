"""Objects as an installation of Volcano leaves them in a cluster, built without the code under
test.

``jobs`` describes jobs and writes their documents; ``installation`` has the fifty jobs, queues and
workloads of the takeover scenario; ``adoption`` checks that Volcano's controllers could continue.
"""
