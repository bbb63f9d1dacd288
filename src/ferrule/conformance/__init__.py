"""Check any server of the Responses API: `ferrule serve check`. A check is a function in `groups/`."""
