"""The cells of a notebook, executed by a Jupyter kernel. Prints how each of them ended."""

import sys

from jupyter_client.manager import KernelManager

CELLS = (
    "import asyncio\nfrom refund_loop import refund",  # calls no model
    "refund('A0')",
    "[refund(f'A{number}') for number in (1,)]\n1 + 1",
    "answer = await asyncio.to_thread(refund, 'A2')",
    "refund('A8')\nraise ValueError('no such customer')",
    "this is not Python",
    "len(answer)",
)


def main():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stdout=sys.stderr)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    for cell in CELLS:
        reply = client.execute_interactive(cell, timeout=60, output_hook=lambda message: None)
        print(reply["content"]["status"], flush=True)
    client.stop_channels()
    manager.shutdown_kernel()


if __name__ == "__main__":
    main()
