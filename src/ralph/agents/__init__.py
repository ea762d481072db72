"""Agent programs and the keeper that runs them."""
