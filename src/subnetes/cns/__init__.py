"""CNS, the node agent: owns the pool of IPs, answers the CNI plugin, asks for more or fewer by the NNC."""
