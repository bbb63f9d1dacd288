"""The launchers that enforce a `SandboxPolicy`. `sandbox.py` is the entry; `plan.py` says what is enforced."""
