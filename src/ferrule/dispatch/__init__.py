"""The one path of a call: routing, the gate, hooks, approval, the sandbox, and what stands behind a context."""
