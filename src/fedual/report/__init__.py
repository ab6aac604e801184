"""A run, or several, as one HTML page that opens anywhere, offline. Needs the extra `report`."""

from fedual.report.page import page, write

__all__ = ["page", "write"]
