"""Recording on many machines: send runs to a server, receive them, API keys."""
