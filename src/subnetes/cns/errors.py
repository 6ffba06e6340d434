"""What can go wrong between a sandbox and the node's pool. Who speaks to a client says them in its terms.

CnsError
├── NotReady            the agent has not synced, or the node has no network container: STATUS fails
├── NoAddress           no IP came free or was granted in time; trying again later is right
├── UnknownAttachment   nothing is held under this container id and interface
├── Mismatch            the attachment holds other addresses than it is thought to
├── BadAddress          an address to listen on is not usable (listener.py)
└── JournalError        the state on disk cannot be read or written; nothing was changed
"""


class CnsError(Exception): ...


class NotReady(CnsError): ...


class NoAddress(CnsError): ...


class UnknownAttachment(CnsError): ...


class Mismatch(CnsError): ...


class JournalError(CnsError): ...
