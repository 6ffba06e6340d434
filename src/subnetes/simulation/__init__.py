"""Nodes without machines: what kubelets and runtimes do, simulated around real agents.

`subnetes up` and the scenario tests run them. Only packets are missing: a sandbox's network namespace is a
file.
"""
