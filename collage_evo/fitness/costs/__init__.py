"""What matches and borders cost, measured or estimated, and the additive model made of both."""
