"""The interface of a store, by question. `store/protocol.py` joins the parts."""
