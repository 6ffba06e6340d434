"""DNC, the allocator: subnets, network containers and IPs in a database. It knows nothing of Kubernetes.

`allocator.py` is the door: whoever asks for IPs holds an `Allocator`, which is a `SqlAllocator` in the same
process or an `HttpAllocator` in front of another one.
"""
