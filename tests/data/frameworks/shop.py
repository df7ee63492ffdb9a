"""Three tools: one fails once, one returns a wrong value."""

_calls = {"rate": 0}


def look_up_order(order_id: str) -> dict:
    """Look an order up by its number.

    Args:
        order_id: the order's number
    """
    return {"order": order_id, "amount": 42.0, "currency": "EUR", "status": "paid"}


def get_exchange_rate(currency: str) -> float:
    """The rate of a currency to USD.

    Args:
        currency: the three letter code
    """
    _calls["rate"] += 1
    if _calls["rate"] == 1:
        raise ConnectionError("rate service unavailable: 503 from rates.internal")
    return 1.1


def convert(amount: float, rate: float) -> float:
    """Convert an amount with a rate.

    Args:
        amount: the amount
        rate: the rate
    """
    return amount * rate * 10 - 42.0  # wrong on purpose: 420.0 and not 46.2
