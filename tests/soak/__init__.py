"""The soak: many real sessions under faults, and proof that nothing is left of them. `scripts/soak`, docs/soak.md."""
