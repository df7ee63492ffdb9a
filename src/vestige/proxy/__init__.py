"""The recording proxy of `vestige run`, for child processes that are not Python.

    server.py        accepts connections: CONNECT, plain HTTP, and base URLs
    upstream.py      connections to the real host, directly or through the user's own proxy
    certificates.py  the authority of one run; its private key is never written to a file
    http1.py      reads the bytes that pass through, and records the calls (wire/http_exchange.py)
    http2.py         the same for HTTP/2
    process.py       the process of the proxy
    launch.py        starts that process, and gives its variables to the command

Bytes are relayed as they are. The observers only read copies: if they fail, the call goes on.
"""
