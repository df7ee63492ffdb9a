"""The shop's tools as an MCP server (stdio)."""

import shop
from mcp.server import MCPServer

server = MCPServer("shop")
server.tool()(shop.look_up_order)
server.tool()(shop.get_exchange_rate)
server.tool()(shop.convert)

if __name__ == "__main__":
    server.run()
