"""Tool calls as text, for models behind the Chat wire whose server or template has none."""
