"""The provider's edge: what really went out and what really came back, at the HTTP transport."""
