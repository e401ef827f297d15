from tests.faces.mcp_client import connect

__all__ = ["connect"]
