"""What random inputs do not show: edge cases, branches that none takes, values and indices out of range."""
