"""Other programs make, change, clone and delete repositories while sessions run commands: `scripts/churn`."""
