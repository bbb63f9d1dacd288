"""The terminal interface, which `ferrule` alone opens. It needs Textual, the extra `tui`."""
